"""Keys × seeds as resumable cells, compared by seed."""

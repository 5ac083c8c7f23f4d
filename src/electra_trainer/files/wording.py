def duration(seconds: float) -> str:
    """`41 s`, `12 min`, `3.5 h`."""
    if seconds < 100:
        return f"{max(seconds, 0):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"

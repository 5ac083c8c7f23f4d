from electra_trainer.errors import ConfigError


def parse_seeds(text: str) -> tuple[int, ...]:
    """`"3"` -> (1, 2, 3); `"1,2,5"` -> (1, 2, 5); `"5,"` -> (5,)."""
    words = [word.strip() for word in text.split(",")]
    given = words[:-1] if len(words) > 1 and not words[-1] else words
    if not all(word.isdecimal() for word in given):
        raise ConfigError(f"--seeds {text!r}: expected a number of seeds such as 3, or a list such as 1,2,5.")
    numbers = tuple(int(word) for word in given)
    if len(words) == 1:
        if not 1 <= numbers[0] <= 1000:
            raise ConfigError(
                f"--seeds {text}: expected from 1 to 1000 seeds; one seed by its number is written {text},"
            )
        return tuple(range(1, numbers[0] + 1))
    if len(set(numbers)) < len(numbers):
        raise ConfigError(f"--seeds {text!r}: a seed stands twice.")
    return numbers


def parse_shard(text: str) -> tuple[int, int]:
    """`"2/4"` -> (2, 4)."""
    first, slash, of = text.partition("/")
    if not (slash and first.isdecimal() and of.isdecimal() and 1 <= int(first) <= int(of)):
        raise ConfigError(f"--shard {text!r}: expected i/N with i from 1 to N, for example 1/4.")
    return int(first), int(of)

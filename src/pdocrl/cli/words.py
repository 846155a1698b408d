"""Options as people write them: `10,5`, `name=value`; and values as tables show them."""

from __future__ import annotations

from typing import Any

from pdocrl.errors import PdocrlError


def any_limit(word: str) -> tuple[float, ...] | str:
    """Numbers with commas between, or a limit in words as it is."""
    return word if any(sign in word for sign in "<>=≤≥") else limit(word)


def limit(word: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in word.split(","))
    except ValueError:
        raise PdocrlError(
            f"cost limit {word!r} is not a number (or numbers with commas between, one per cost), nor one in words, "
            "such as 'P(cost>20)<=0.1'."
        ) from None


def pairs(words: tuple[str, ...]) -> dict[str, str]:
    for word in words:
        if "=" not in word:
            raise PdocrlError(f"{word!r} is not of the form name=value.")
    return dict(word.split("=", 1) for word in words)


def settings(words: tuple[str, ...]) -> dict[str, Any]:
    return {name: _value(text) for name, text in pairs(words).items()}


def _value(text: str) -> Any:
    """A setting's value as written: a number, true/false, a tuple with commas, else a word."""
    if "," in text:
        return tuple(_value(part) for part in text.split(",") if part)
    if text.lower() in {"true", "false"}:
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def many(text: str) -> list[Any]:
    value = _value(text)
    return list(value) if isinstance(value, tuple) else [value]

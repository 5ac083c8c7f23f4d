"""Find the folder of a model's name: a path, or a name on the Hub, from which it is downloaded. settings/records.py
finds runs, and the encoders that come with this package.
"""

import re
from pathlib import Path

from electra_trainer.data import tokenizer as words
from electra_trainer.data.tokenizer import ADDED, SPECIALS_MAP
from electra_trainer.errors import MissingInputError
from electra_trainer.pretrained import embedding
from electra_trainer.pretrained.model_card import HUB_NAME
from electra_trainer.settings import records

EXPECTED = (
    f"Expected a run folder, an exported folder, {records.DEFAULT} or a Hub name such as "
    "google/electra-small-discriminator."
)
_HUB_FILES = (
    records.TASK,
    records.LEARNED,
    "config.json",
    "model.safetensors",
    *words.TOKENIZER_FILES,
    SPECIALS_MAP,
    ADDED,
    *embedding.FILES,
    embedding.PROMPTS,
)


def located(name: str | Path) -> Path:
    """The folder of that name, or of that Hub name once it is downloaded.

    Raises:
        MissingInputError: nothing is there, or a file, and it is no Hub name; or the Hub cannot be reached.
    """
    folder = Path(name)
    if not str(name) or not folder.exists():
        folder = _download(str(name))
    if not folder.is_dir():
        raise MissingInputError(f"{name}: is a file. {EXPECTED}")
    if (folder / "pytorch_model.bin").is_file() and not (folder / "model.safetensors").is_file():
        raise _pickled(str(name), folder, where="has pytorch_model.bin and no model.safetensors")
    return folder


def _download(name: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, RepositoryNotFoundError

    nowhere = f"{name or repr(name)}: no such folder"
    if not HUB_NAME.fullmatch(name):
        raise MissingInputError(f"{nowhere}. {EXPECTED}")
    if not name.startswith("google/"):
        begin = f"begin with {records.DEFAULT}, or train it with electra pretrain DATA --out {name}"
        nowhere += f" (no run is there: {begin})"
    try:
        folder = Path(snapshot_download(name, allow_patterns=[*_HUB_FILES, *(f"encoder/{one}" for one in _HUB_FILES)]))
    except RepositoryNotFoundError:
        raise MissingInputError(f"{nowhere}, and no such model on the Hub that may be read. Check the name.") from None
    except (HfHubHTTPError, OSError) as error:
        why = (str(error) or type(error).__name__).splitlines()[0]
        raise MissingInputError(
            f"{nowhere}, and the Hub could not be asked ({why}). Check the name and the network."
        ) from None
    if not any((folder / place / "model.safetensors").is_file() for place in ("", "encoder")):
        raise _pickled(name, folder, where="has no model.safetensors on the Hub")
    return folder


def _pickled(name: str, folder: Path, *, where: str) -> MissingInputError:
    """The error on weights in another form, with the command that converts them, heads included."""
    table = records.read_table(folder / "config.json") if (folder / "config.json").is_file() else {}
    known = re.search(r"'((Electra|Bert)\w{1,60})'", str(table.get("architectures")))
    kind = known[1] if known else "AutoModelForPreTraining"
    convert = f"[c.from_pretrained('{name}').save_pretrained('DIR') for c in (t.{kind}, t.AutoTokenizer)]"
    return MissingInputError(
        f"{name}: {where}, and pickled weights are not read. Convert it once, and give DIR: python -c "
        f'"import transformers as t; {convert}"'
    )

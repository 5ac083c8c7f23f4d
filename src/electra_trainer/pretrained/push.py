"""Upload exported folders to the Hub by huggingface_hub: a repository for each network. All is checked before anything
is asked.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from electra_trainer.errors import ConfigError, DataError, ElectraError, MissingInputError, StorageError
from electra_trainer.pretrained.model_card import TAG, check_hub_name, hub_name
from electra_trainer.pretrained.read_back import network_folders, roles
from electra_trainer.settings.records import is_run

_STALE = ["onnx/*", "1_Pooling/*", "*.json", "*.safetensors", "vocab.txt"]
"""Patterns of files that an earlier export may have left in a repository; other files there stay."""
_LOGIN = "Type `hf auth login`, or set HF_TOKEN: https://huggingface.co/settings/tokens"


@dataclass(frozen=True, kw_only=True)
class Upload:
    """A folder and the repository that it goes to."""

    folder: Path
    repo: str
    license: str
    files: dict[str, int]
    """Path in the folder -> bytes."""
    is_named: bool
    """Whether the card's examples have the name of the repository."""

    @property
    def lines(self) -> str:
        """For people."""
        listed = [f"  {size:>13,}  {name}" for name, size in self.files.items()]
        head = (
            f"{self.folder} -> {self.repo}: {len(self.files)} files, {sum(self.files.values()):,} bytes, license "
            f"{self.license}"
        )
        note = f"  note: the examples in README.md do not have the name {self.repo}; edit PATH there"
        return "\n".join([head, *listed, *([] if self.is_named else [note])])


def uploads(folder: Path, repo: str) -> list[Upload]:
    """The uploads that `push` would make; nothing is asked of the Hub.

    Args:
        folder: an export, one network of it, or a fine-tuned model's folder or the experiment that holds it.
        repo: OWNER/NAME; each of several networks adds its own name.

    Raises:
        MissingInputError: no such folder. ConfigError: it is not an export, its card has no license, or `repo` cannot
            be a name.
        DataError: a card's header cannot be read, or a link is among the files.
    """
    check_hub_name(repo, flag="--repo")
    if not folder.is_dir():
        raise MissingInputError(f"{folder}: no such folder. Expected one that `electra export` wrote.")
    alone = [place for place in (folder, folder / "model") if (place / "config.json").is_file()][:1]
    parts = network_folders(folder) or alone
    if is_run(folder) or not parts:
        raise _not_an_export(folder)
    names = {part: role for role, part in reversed(roles(parts).items())} if len(parts) > 1 else {}
    return [_upload(part, hub_name(repo, names.get(part, part.name), alone=len(parts) == 1)) for part in parts]


def _not_an_export(folder: Path) -> ConfigError:
    return ConfigError(
        f"{folder}: not an exported model (a config.json, and a README.md with the tag {TAG}). Make one of a run: "
        "electra export RUN --out DIR --license mit"
    )


def _upload(folder: Path, repo: str) -> Upload:
    head = _head(folder / "README.md")
    if TAG not in (head.get("tags") or ()):
        raise _not_an_export(folder)
    if not (terms := head.get("license")):
        raise ConfigError(
            f"{folder}: README.md names no license, without which nobody may use the model. Add the line `license: "
            "mit` (or another) after its first line; of an exported run, or export again with --license mit."
        )
    found = sorted(path for path in folder.rglob("*") if not path.is_dir() or path.is_symlink())
    found = [path for path in found if not any(part.startswith(".") for part in path.relative_to(folder).parts)]
    if links := [path for path in found if path.is_symlink()]:
        raise DataError(f"{links[0]}: is a link, and may lead out of the folder. Put the file itself there.")
    files = {path.relative_to(folder).as_posix(): path.stat().st_size for path in found}
    is_named = f'"{repo}"' in (folder / "README.md").read_text(encoding="utf-8")
    return Upload(folder=folder, repo=repo, license=str(terms), files=files, is_named=is_named)


def _head(card: Path) -> dict[str, Any]:
    """The header of a model card; empty where there is none."""
    from huggingface_hub import metadata_load

    if not card.is_file():
        return {}
    try:
        return metadata_load(card) or {}
    except Exception as error:
        why = " ".join(str(error).split())[:200]
        raise DataError(f"{card}: its header is not YAML ({why}). Correct it, or export again.") from None


def push(upload: Upload, *, private: bool = False) -> str:
    """Create the repository if it is missing, and upload the folder; returns the URL.

    Raises:
        ConfigError: there is no token, it is not accepted, or the repository is public and `private` was asked for.
        StorageError: the Hub cannot be reached, or refuses.
    """
    import huggingface_hub

    if huggingface_hub.get_token() is None:
        raise ConfigError(f"{upload.repo}: there is no token for the Hub. {_LOGIN}")
    api = huggingface_hub.HfApi()
    try:
        url = api.create_repo(upload.repo, private=private or None, exist_ok=True)
        if private and not api.model_info(upload.repo).private:
            raise ConfigError(
                f"{upload.repo}: is there, and public. Make it private on its page, or leave --private out."
            )
        api.upload_folder(
            repo_id=upload.repo,
            folder_path=upload.folder,
            ignore_patterns=[".*", "*/.*"],
            delete_patterns=_STALE,
            commit_message="Upload with electra-trainer",
        )
    except ElectraError:
        raise
    except Exception as error:
        status = getattr(getattr(error, "response", None), "status_code", None)
        if status in (401, 403):
            why = "does not accept the token" if status == 401 else "does not let the token write there"
            raise ConfigError(f"{upload.repo}: the Hub {why}. Check the owner's name and the token. {_LOGIN}") from None
        why = " ".join(str(error).split())[:300] or type(error).__name__
        raise StorageError(
            f"{upload.repo}: was not uploaded ({why}). Check the network, then give the same command again."
        ) from None
    return str(url)

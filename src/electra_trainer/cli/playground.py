"""`electra playground RUN [RUN]`: a trained network on a page in the browser."""

import os
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import tyro

from electra_trainer.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Playground:
    """Show a trained network on a page in the browser: type a sentence, see which words look replaced, exchange them;
    two models side by side. It is served on this machine alone and asks no other.
    """

    models: tyro.conf.Positional[tuple[Path, ...]]
    """One or two of: run folder (RUN@STEP: begin with that checkpoint), exported folder, fine-tuned DIR/model."""
    port: int = 7860
    """Port of the page; 0 takes a free one."""
    host: str = "127.0.0.1"
    """Address to listen on. Anybody who reaches another one than 127.0.0.1 can use the model."""
    no_browser: bool = False
    """Do not open a browser, only print the address."""

    def run(self) -> None:
        """Load the models, print the address, serve until Ctrl-C."""
        if not 1 <= len(self.models) <= 2:
            raise ConfigError(f"playground: {len(self.models)} models were given. Give one, or two to compare.")
        from electra_trainer.playground.answers import open_model
        from electra_trainer.playground.server import listen

        serve, _, url = listen([open_model(name) for name in self.models], host=self.host, port=self.port)
        print(f"{url}  (Ctrl-C ends it)", flush=True)
        if not self.no_browser and _has_screen():
            import webbrowser

            webbrowser.open(url)
        with suppress(KeyboardInterrupt):  # the way to end it
            serve()


def _has_screen() -> bool:
    """Without one, a browser for terminals would take this terminal."""
    return sys.platform == "darwin" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))

"""Vocabularies: trained alike every time, read strictly, and the same ids in transformers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest_data import sentences
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from electra_trainer.data.corpus import Document
from electra_trainer.data.encode import Encoded, encoder
from electra_trainer.data.tokenizer import (
    SPECIAL_TOKENS,
    Specials,
    as_plain_text,
    load_tokenizer,
    save_tokenizer,
    specials_of,
    statistics,
    tokenizer_sha256,
    vocab_size_of,
)
from electra_trainer.data.vocabulary import train_tokenizer
from electra_trainer.errors import ConfigError, DataError, MissingInputError

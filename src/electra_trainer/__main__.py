"""`python -m electra_trainer` is the command `electra`."""

import sys

from electra_trainer.cli.main import main

sys.exit(main())

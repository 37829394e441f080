"""The examples run as a reader would run them."""

import re
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parent.parent / "examples"


def test_digits() -> None:
    command = [sys.executable, str(EXAMPLES / "digits.py"), "--epochs", "4"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    rows = re.findall(r"^(\w*CrossEntropyLoss) +([\d.]+)% +([\d.]+)% +([\d.]+)", done.stdout, re.M)
    assert [row[0] for row in rows] == ["CrossEntropyLoss", "ComplementCrossEntropyLoss"]
    assert min(float(row[1]) for row in rows) > 15, "no better than guessing"

"""Amazon's signer as a source of tokens, called as the documentation says. It signs without asking
anybody; there is no broker here that could check what it has signed."""

from __future__ import annotations

import base64
import sys
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from rangeland.cluster_settings import TokenSource
from rangeland.connection.tokens import fetch_token
from rangeland.testing.processes import PATIENCE_S
from tests.build_cache import kept, pip_install
from tests.docs import page

pytestmark = [pytest.mark.brokers, pytest.mark.slow]

SIGNER = "aws-msk-iam-sasl-signer-python"
VERSION = f"{SIGNER}==1.0.2"
CALL = 'MSKAuthTokenProvider.generate_auth_token("eu-west-1")[0]'
FUNCTION = f"""
def token():
    from aws_msk_iam_sasl_signer import MSKAuthTokenProvider

    return {CALL}
"""


@pytest.fixture
def signer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The package can be imported, and finds a key in its environment only."""
    place = kept(
        "packages",
        f"{sys.version_info[:2]} {VERSION} with what it needs",
        lambda target: pip_install(Path(sys.executable), ["--target", str(target), VERSION]),
    )
    monkeypatch.syspath_prepend(str(place))
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, "/dev/null")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a secret")


def test_the_documented_function_makes_a_token_for_iam(
    signer: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    documented = page("configs/README.md")
    assert CALL in documented
    assert f"`{SIGNER}`" in documented
    (tmp_path / "iam_token.py").write_text(FUNCTION)
    monkeypatch.syspath_prepend(str(tmp_path))
    token = fetch_token(TokenSource(function="iam_token:token"), int(PATIENCE_S * 1000))
    address = urlsplit(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode())
    asked = parse_qs(address.query)
    assert address.hostname == "kafka.eu-west-1.amazonaws.com"
    assert asked["Action"] == ["kafka-cluster:Connect"]
    assert asked["X-Amz-Credential"][0].startswith("AKIAEXAMPLE/")
    assert len(asked["X-Amz-Signature"][0]) == 64

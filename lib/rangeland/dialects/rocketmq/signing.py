"""Signs requests with an access key.

The name of the key and the signature are fields of each request. The signature is the Base64 of
HMAC-SHA1 over the values of all other fields, in the order of their keys, followed by the body.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping

from rangeland.dialects.protocol_session import Credentials
from rangeland.wire.primitives import Part

ACCESS_KEY = "AccessKey"
SIGNATURE = "Signature"


def signed(fields: Mapping[str, str], body: Part, credentials: Credentials) -> dict[str, str]:
    """The fields with the access key (``username``) and the signature, made with the secret key
    (``password``)."""
    named = {**fields, ACCESS_KEY: credentials.username}
    text = "".join(named[key] for key in sorted(named) if key != SIGNATURE)
    mac = hmac.new(credentials.password.encode(), digestmod=hashlib.sha1)
    mac.update(text.encode())
    mac.update(body)
    return {**named, SIGNATURE: base64.b64encode(mac.digest()).decode()}

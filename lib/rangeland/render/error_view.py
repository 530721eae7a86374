"""An error as text for people: what happened, why, what to do, and what this means for the data.

Every command may end here, so few modules are imported.
"""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.text import Text

from rangeland.errors import RangelandError, public_name
from rangeland.render.text_drawing import facts, safe_text
from rangeland.wording import sentence


def render_error(error: RangelandError) -> RenderableType:
    """A box with what happened, why and what to do, and with whether the data is safe, whether to
    retry, and who has to act."""
    lines = [("why", sentence(error.why)), ("do", sentence(error.do)), ("data", error.data)]
    lines += [("retry", error.retry), ("who acts", error.acts)]
    grid = facts((name, text) for name, text in lines if text)
    title = Text(f"{public_name(error)}, exit {error.exit_code}", "bold red")
    content = Group(safe_text(sentence(error.what), "bold"), Text(), grid)
    return Panel(content, title=title, title_align="left", border_style="red")

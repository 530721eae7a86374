"""An error as a picture of text: what, why, what to do; and what that means for the data.

Every command may end here, so little is imported. Strings from outside are made safe by
``drawing``.
"""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from rangeland.errors import RangelandError
from rangeland.render.text_drawing import safe_text


def error_picture(error: RangelandError) -> RenderableType:
    """What, why, what to do; is the data safe, may I retry, who acts."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    answers = [("why", error.why), ("do", error.do), ("data", error.data)]
    for name, answer in [*answers, ("retry", error.retry), ("who acts", error.acts)]:
        if answer:
            grid.add_row(name, safe_text(answer))
    title = Text(f"{type(error).__name__}, exit {error.exit_code}", "bold red")
    content = Group(safe_text(error.what, "bold"), Text(), grid)
    return Panel(content, title=title, title_align="left", border_style="red")

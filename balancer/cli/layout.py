"""Tables that fit the terminal: names stay whole, and a narrow one gets a block for each row."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markup import escape, render
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

_GAP = 2
# Least width of a column whose text may be wrapped between words.
_PROSE = 24
# A name with a bracket, as it is escaped in markup.
_NAMED = re.compile(r"(\w)(\\?\[[\w.]+\])")


class Rows:
    """A table without borders.

    In a terminal too narrow for it, prose is wrapped between words; then titles break between
    words, names before a bracket (``UsageDistribution[disk]``) and several figures of a cell at the
    two spaces between them; and at last each row becomes a block of lines.

    Parameters
    ----------
    headers
        Titles of the columns: one that ends in ``>`` is aligned to the right, one that ends in
        ``~`` holds prose, which may be wrapped; one that ends in ``!`` is the name of the row.
        Without such a mark the first column is the name.
    title
        Printed above; plain text.
    """

    def __init__(self, *headers: str, title: str = "") -> None:
        self.title = title
        self.titles = [header.rstrip(">~!") for header in headers]
        self._right = [header.endswith(">") for header in headers]
        self._prose = [header.endswith("~") for header in headers]
        named = [i for i, header in enumerate(headers) if header.endswith("!")]
        self._name = named[0] if named else 0
        self._cells: list[Sequence[str]] = []

    def add(self, *cells: str) -> None:
        """Add a row; cells are text with rich's markup, escaped where it comes from a cluster."""
        self._cells.append(cells)

    def __len__(self) -> int:
        return len(self._cells)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self.title:
            yield Text(self.title, style="bold")
        width = options.max_width
        if self.fits(width):
            yield self._table(self.titles, self._cells)
            return
        titles = [title.replace(" ", "\n") for title in self.titles]
        if self._least([titles, *self._cells]) <= width:
            yield self._table(titles, self._cells)
            return
        broken = [
            [_broken(cell, p) for cell, p in zip(row, self._prose, strict=True)]
            for row in self._cells
        ]
        if self._least([titles, *broken]) <= width:
            yield self._table(titles, broken)
            return
        yield from self._blocks()

    def fits(self, width: int) -> bool:
        """Whether no row needs more than one line, apart from prose."""
        return self._least([self.titles, *self._cells]) <= width

    def _least(self, rows: Iterable[Sequence[str]]) -> int:
        """The width below which more than prose would have to break."""
        columns = zip(*rows, strict=True)
        widest = [
            max(_PROSE, *(_word(cell) for cell in column)) if prose else max(map(_width, column))
            for column, prose in zip(columns, self._prose, strict=True)
        ]
        return sum(widest) + _GAP * (len(widest) - 1)

    def _table(self, titles: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
        table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0))
        for title, right, prose in zip(titles, self._right, self._prose, strict=True):
            table.add_column(
                escape(title),
                justify="right" if right else "left",
                no_wrap=not prose,
                overflow="fold",
            )
        for row in rows:
            table.add_row(*row)
        return table

    def _blocks(self) -> RenderResult:
        for row in self._cells:
            cells = [
                (f"{title} {render(cell).plain}".strip().replace("  ", " "), prose)
                for title, cell, prose in zip(self.titles, row, self._prose, strict=True)
                if cell
            ]
            name, _ = cells.pop(self._name) if row[self._name] else ("", False)
            yield Text(name, style="bold")
            short = ", ".join(text for text, prose in cells if not prose)
            for line in (short, *(text for text, prose in cells if prose)):
                if line:
                    yield Padding(Text(line), (0, 0, 0, 2), expand=False)


def _width(cell: str) -> int:
    return max((cell_len(line) for line in render(cell).plain.split("\n")), default=0)


def _word(cell: str) -> int:
    return max((cell_len(word) for word in render(cell).plain.split()), default=0)


def _broken(cell: str, prose: bool) -> str:
    """Names such as ``UsageDistribution[disk]`` with a place to break before the bracket."""
    text = render(cell)
    if prose:
        return _NAMED.sub(r"\1 \2", cell)
    if "  " in text.plain:
        return cell.replace("  ", "\n")
    name, bracket, rest = text.plain.partition("[")
    return escape(f"{name}\n [{rest}") if bracket and name and " " not in text.plain else cell


class Widest:
    """The first of some tables that fits in the terminal, else the last.

    Parameters
    ----------
    tables
        The same rows with ever fewer figures.
    """

    def __init__(self, *tables: Rows) -> None:
        self.tables = tables

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        fitting = (table for table in self.tables if table.fits(options.max_width))
        yield next(fitting, self.tables[-1])

"""Where the parts of a step stand in the file they were written in. Pure."""

from dataclasses import dataclass, field

from agentfs.core.problems import Locate

Place = tuple[int, int]  # line, column, both from 1


@dataclass(slots=True)
class Places:
    """JSON pointers of one value and where each stands; a part that has no place of its own has its parent's."""

    start: Place
    marks: dict[str, Place] = field(default_factory=dict)
    inside: dict[str, Locate] = field(default_factory=dict)  # documents within the document

    def locate(self, pointer: str, key: bool) -> Place:
        """Return the place of a pointer, or of the nearest thing around it."""
        at = pointer
        while at:
            if at in self.inside:
                return self.inside[at](pointer[len(at) :], key)
            if at in self.marks:
                return self.marks[at]
            at = at.rpartition("/")[0]
        return self.start


def under(prefix: str, locate: Locate) -> Locate:
    """Return the locator of the value at a prefix, which knows nothing of what is around it."""
    return lambda pointer, key: locate(prefix + pointer, key)


def moved(locate: Locate, lines: int, columns: int) -> Locate:
    """Return the locator of a document that begins further down and to the right in a file."""

    def place(pointer: str, key: bool) -> Place:
        line, column = locate(pointer, key)
        return line + lines, column + columns

    return place

"""The same work in LangGraph with SqliteSaver. Run by the Python of a virtual environment that has both.

    python benchmarks/peer.py chain|loop|wide STEPS FOLDER

Prints the seconds it took, without start-up: packages imported, graph built. Every result is kept in the state, as
agentfs keeps every result in a file. A `chain` has a node per step, as a plan has; a `loop` uses one node again and
again.
"""

import operator
import sqlite3
import sys
import time
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langgraph.checkpoint.sqlite import SqliteSaver  # type: ignore[import-not-found,unused-ignore]
from langgraph.graph import END, START, StateGraph  # type: ignore[import-not-found,unused-ignore]
from langgraph.types import Send  # type: ignore[import-not-found,unused-ignore]


class State(TypedDict):
    results: Annotated[dict[str, Any], operator.or_]


def result(number: int) -> dict[str, Any]:
    """About as much as agentfs writes of a step."""
    return {"status": "done", "output": f"step {number}", "key": f"{number:064d}", "why": "x" * 880}


def chain(steps: int) -> Any:
    graph = StateGraph(State)
    for number in range(steps):
        graph.add_node(f"s{number}", lambda _state, n=number: {"results": {f"s{n}": result(n)}})
        graph.add_edge(f"s{number - 1}" if number else START, f"s{number}")
    graph.add_edge(f"s{steps - 1}", END)
    return graph


def loop(steps: int) -> Any:
    def step(state: State) -> dict[str, Any]:
        number = len(state["results"])
        return {"results": {f"s{number}": result(number)}}

    graph = StateGraph(State)
    graph.add_node("step", step)
    graph.add_edge(START, "step")
    graph.add_conditional_edges("step", lambda state: END if len(state["results"]) >= steps else "step")
    return graph


def wide(steps: int) -> Any:
    def step(number: int) -> dict[str, Any]:
        time.sleep(0.01)
        return {"results": {f"s{number}": result(number)}}

    graph = StateGraph(State)
    graph.add_node("step", step)
    graph.add_conditional_edges(START, lambda _state: [Send("step", number) for number in range(steps)], ["step"])
    graph.add_edge("step", END)
    return graph


def main(kind: str, steps: int, folder: Path) -> None:
    connection = sqlite3.connect(folder / "peer.db", check_same_thread=False)
    app = {"chain": chain, "loop": loop, "wide": wide}[kind](steps).compile(checkpointer=SqliteSaver(connection))
    config = {"configurable": {"thread_id": "1"}, "recursion_limit": steps + 10, "max_concurrency": 8}
    began = time.perf_counter()
    done = app.invoke({"results": {}}, config, durability="sync")
    print(time.perf_counter() - began)
    if len(done["results"]) != steps:
        raise SystemExit("it did not do all of it")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))

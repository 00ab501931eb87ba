"""What a person sees of runs in a browser: one page that tells a run, and a live view of a workspace.

    html       elements that escape every text       layout     where the nodes of a graph go
    gather     a run's files as one value            graph, timeline, changes, steps, sections   parts of a page
    document   the report                            site       what is around a page: links, forms, acts
    app, view, access, events, live_pages, form_pages           the live view

Everything but `gather`, logs and the live view is pure. Nothing here writes: acts are handed in by the command `web`.
"""

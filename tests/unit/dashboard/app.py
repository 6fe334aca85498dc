"""The dashboard's app, run without a browser over a history made up for a test."""

from __future__ import annotations

from streamlit.testing.v1 import AppTest

from satwatch._dashboard import source
from satwatch.addresses import ADDRESS_VARIABLE
from tests.unit.dashboard.synthetic import NOW

PAGES = ("now", "bounds", "lag", "engines", "routing", "tokens", "compare", "alerts")


def _script(page):
    from satwatch._dashboard.app import main

    main(page)


def show(monkeypatch, history, page="now", now=NOW, **link):
    """Open a page by a link, and return it; an exception of its own fails the test."""
    monkeypatch.delenv(ADDRESS_VARIABLE, raising=False)
    monkeypatch.setattr(source, "open_history", lambda address: history)
    monkeypatch.setattr(source, "now", lambda: now)
    app = AppTest.from_function(_script, args=(page,), default_timeout=60)
    app.query_params.update(link)
    app.run()
    assert not app.exception, app.exception[0].message
    return app


def again(app):
    """Run the app again after a widget was changed."""
    app.run()
    assert not app.exception, app.exception[0].message
    return app


def metrics(app):
    """Return the tiles of a page: their values by label, without the unit."""
    return {tile.label.split(" :gray", 1)[0]: tile.value for tile in app.metric}


def text(app):
    """Return all that a page says in words."""
    kinds = (app.title, app.markdown, app.info, app.warning, app.error, app.success, app.caption, app.code)
    return "\n".join(element.value for kind in kinds for element in kind)


def figures(app):
    """Return how many figures a page shows."""
    return len(app.get("bidi_component"))


def link(app):
    """Return the query parameters that the address line has come to."""
    return {name: value if isinstance(value, str) else value[0] for name, value in app.query_params.items()}

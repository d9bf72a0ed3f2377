"""Parts of pages in Chromium, where names are as long as a file's or an experiment's may be."""

import pytest
from playwright.sync_api import Browser

from tests.browser import IN_CHROMIUM
from tokenmill.evaluation.results import Answer, Question
from tokenmill.reports.answers import compare_answers
from tokenmill.reports.charts import Series, line_chart
from tokenmill.reports.page import environment

pytestmark = IN_CHROMIUM

NAME = "long" * 50
PAGE = """\
{% extends "page.html" %}
{% import "parts.html" as parts %}
{% import "answers.html" as answers %}
{% block style %}{% include "answers.css" %}{% endblock %}
{% block content %}
{% call parts.chart(chart) %}{% endcall %}
{{ parts.bar_table("file", [(name, "", 3)], 3) }}
{{ answers.prompt(prompt, 1) }}
{% endblock %}
"""
WIDER = """() => [document.documentElement, ...document.querySelectorAll(".scroll, li")].filter(
    each => each.scrollWidth > each.clientWidth + 1).map(each => each.outerHTML)"""
"""Elements whose content is wider than they are."""


@pytest.mark.parametrize("width", [390, 1280])
def test_a_long_name_widens_nothing(browser: Browser, width: int) -> None:
    series = Series([1, 2], 1, NAME, [1, 2])
    answer = Answer(greedy="a", sampled="b", found=None, repetition=0)
    question = Question(prompt="p", expect=None, left_out="")
    values = {
        "chart": line_chart([series], x_label="", y_label="", alt=""),
        "prompt": compare_answers(question, [(NAME, answer)] * 2),
        "name": NAME,
    }
    page = browser.new_page(viewport={"width": width, "height": 800})
    page.set_content(environment().from_string(PAGE).render(values))
    assert page.evaluate(WIDER) == []
    page.close()

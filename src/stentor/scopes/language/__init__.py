"""The scope graph language: text to statements and back, and statements to scope graphs.

| File | The one idea |
|---|---|
| `grammar.lark`, `tokens`, `parser`, `builder` | from text to values, mistakes with their place |
| `syntax` | the values |
| `printer` | from values to text: the formatter |
| `translation` | filters, interfaces, mappings and policies as the model has them |
| `description` | what a scope is to be; ADD, DEL and replacement |
| `selection` | which nodes names and selections mean |
| `deployment`, `placement`, `edits` | statements carried out on a graph, all or nothing |
| `standing` | statements on a graph that brokers have, without what was said of it |
| `automation`, `maintenance` | UPDATE and MAINTAIN: scopes that change as things happen |
| `checks` | advice for administrators |
| `composition` | several files, and where each statement comes from |
"""

from stentor.scopes.language.automation import Automation
from stentor.scopes.language.composition import Composition, compose, load
from stentor.scopes.language.deployment import Deployment, register_architecture
from stentor.scopes.language.maintenance import Maintenance
from stentor.scopes.language.parser import parse
from stentor.scopes.language.placement import Instance
from stentor.scopes.language.printer import format_script
from stentor.scopes.language.standing import alter
from stentor.scopes.language.syntax import Script
from stentor.scopes.language.translation import register_filter_model, register_test

__all__ = [
    "Automation",
    "Composition",
    "Deployment",
    "Instance",
    "Maintenance",
    "Script",
    "alter",
    "compose",
    "format_script",
    "load",
    "parse",
    "register_architecture",
    "register_filter_model",
    "register_test",
]

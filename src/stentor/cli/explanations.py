"""What each error means, and what to do about it.

`stentor explain` prints these texts, and `docs/errors.md` is made of them. Every class of
`stentor.errors` has its entry here.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from functools import cache
from typing import Final

from stentor import errors


@dataclass(frozen=True)
class Explanation:
    """One error: its code and class, what it means, and what to do, one step each."""

    code: str
    name: str
    meaning: str
    steps: tuple[str, ...]


#: By class: the meaning, then what to do.
_TEXTS: Final[dict[type[errors.StentorError], tuple[str, ...]]] = {
    errors.StentorError: (
        "An error without a class of its own. A broker of another release reported it under a code "
        "that this release does not know; the message shows that code.",
        "Look the code up in the documentation of the newer release.",
        "Run the same release on both sides.",
    ),
    errors.InvalidValue: (
        "A value that no attribute can hold: NaN, an integer beyond 64 bits, a time without a time "
        "zone, a collection inside a collection, or an object of an unknown class.",
        "Leave the attribute out instead of NaN.",
        "Give times a zone: `datetime.now(UTC)`, or a Z at the end of the text.",
        "Register a class of your own with `register_value_type`.",
    ),
    errors.InvalidNotification: (
        "Attributes that do not form a notification: none at all, the same name flat and nested, a "
        "reserved name (they begin with an underscore), or too many or too large values.",
        "Correct the attribute that the message names.",
        "Put large content into the payload, which filters do not see.",
    ),
    errors.DecodeError: (
        "Bytes that are not an encoded notification.",
        "Check that whoever made them used `stentor.model.encode` of this or an older release.",
        "If they came out of a journal, check that: `stentor journal check DIRECTORY`.",
    ),
    errors.UnknownEventType: (
        "An event type that was never declared where one must be, or a declaration that "
        "contradicts another one or would make a type its own ancestor.",
        "Declare the type before it is used, and everywhere in the same way.",
    ),
    errors.FilterSyntaxError: (
        "Text that is not a filter. The message shows the place and what was expected there.",
        "Put strings into single quotes, `symbol = 'IBM'`; in a shell, put the whole filter into "
        "double quotes.",
        "The language is described in docs/language.md.",
    ),
    errors.FilterTypeError: (
        "An operator with a constant of the wrong type, such as a prefix that is a number.",
        "Use a constant of the type that the operator works on.",
    ),
    errors.FilterTooComplex: (
        "A Boolean expression with too many alternatives once it is multiplied out, or one that "
        "takes a broker more work than it spends on one request.",
        "Write many values of one attribute as `x in (1, 2, 3)` instead of joining them with `or`.",
        "Make several subscriptions with simpler filters.",
    ),
    errors.NeverMatches: (
        "A filter that no event can match, given with `strict=True` or `--strict`: its parts "
        "contradict each other, or it needs a name that no event has.",
        "Correct the parts that the message names. Alternatives are joined with `or`.",
        "Leave out `strict` if the filter is put together by a program and may be empty.",
    ),
    errors.UnsupportedPattern: (
        "A regular expression with a construct that is not regular (a backreference, lookaround, a "
        "word boundary), or one that is too large.",
        "Rewrite it without that construct, or test a part of it in the program.",
    ),
    errors.DuplicateKey: (
        "A filter was added to a matcher under a key that is in use.",
        "Remove the old one first, or choose another key.",
    ),
    errors.UnknownKey: (
        "A filter cannot be removed from a matcher, because nothing is stored under its key.",
        "Check whether it was removed before, or belongs to another matcher.",
    ),
    errors.UnsupportedColumn: (
        "A column of a record batch whose Arrow type holds no attribute values.",
        "Cast the column, or leave it out of the batch.",
    ),
    errors.UnsupportedFilter: (
        "A filter that this matching engine does not support.",
        "Use `Index`, which holds every filter.",
    ),
    errors.UnknownStrategy: (
        "A strategy, mapping or policy that does not exist. The message lists those that do.",
        "Choose one of those, and check the spelling.",
    ),
    errors.InvalidTopology: (
        "Brokers and links that do not form the required topology. In a tree, there is exactly one "
        "way between any two brokers.",
        "If the message names a cycle, remove one of its links.",
        "Check the file without starting anything: `stentor up --check overlay.toml`.",
    ),
    errors.UnknownBroker: (
        "A broker that is not part of the network.",
        "Check the name; `stentor status` shows the brokers that can be reached.",
    ),
    errors.DuplicateBroker: (
        "A second broker under a name or address that is taken.",
        "Give every broker a name of its own.",
        "If a link was added twice, you need not do anything: see `stentor links list`.",
    ),
    errors.UnknownClient: (
        "A client that is not, or no longer, part of the network.",
        "Make a new client; one that was closed cannot be used again.",
    ),
    errors.InvalidConfiguration: (
        "An option that makes no sense, or several that contradict each other. If it comes from a "
        "file, the message names the file and the line.",
        "Correct what the message names: an option, an environment variable, or a line of a file.",
        "See which values are in force and where each comes from: `stentor broker --show-config`.",
        "See all keys: `stentor explain settings`.",
    ),
    errors.UnsupportedMapping: (
        "A filter that the chosen rendezvous mapping cannot carry. The message says which part.",
        "Constrain the attributes that the mapping needs, or choose another mapping.",
    ),
    errors.NotAdvertised: (
        "A notification that no advertisement of its publisher matches, at a broker that insists "
        "on advertisements.",
        "Advertise before publishing, with a filter that matches what you publish: "
        "`bus.advertise(...)`, or `stentor publish --advertise FILTER`.",
        "Or let the broker run without `enforce_advertisements`.",
    ),
    errors.RepeatedPublication: (
        "A notification whose id was published before. Each is published at most once.",
        "Publish without an id: the client gives each notification an id of its own.",
        "To repeat an event on purpose, publish a new notification with the same attributes.",
    ),
    errors.InvalidScopeGraph: (
        "A change that would break the scope graph, or a definition that makes no sense: a cycle, a"
        " member of a simple component, a name that is taken, a selection that finds fewer"
        " components than it needs, a mapping in one direction whose opposite is neither known nor"
        " closed. Nothing was changed.",
        "Run `stentor scopes check FILE`, which names the statement and draws the graph.",
    ),
    errors.UnknownScope: (
        "A scope, or a component, that is not part of the scope graph, or a name that stands for"
        " several.",
        "Compare with the drawing of `stentor scopes check FILE`.",
        "Where two have the same name, write the path to the one that is meant, `a::b`.",
    ),
    errors.ScopesElsewhere: (
        "A change of the scope graph was asked of a broker that does not order changes. One broker"
        " does: the one at which the first graph was deployed.",
        "Connect to the broker that the message names; `stentor scopes deploy` does so by itself.",
        "If that broker is gone for good: `stentor scopes deploy --take-over FILE ADDRESS`.",
    ),
    errors.ScopeSyntaxError: (
        "Text that is not in the scope graph language. The message shows the place with a caret,"
        " and what was expected there.",
        "See docs/scopes.md for the language.",
    ),
    errors.InvalidPattern: (
        "A pattern over events that makes no sense: it names an event that is not defined, a time"
        " that no timing operator starts, a partition in the middle, or it needs more states than"
        " an automaton may have.",
        "The message says which part. docs/composite.md has the language and its limits.",
    ),
    errors.PatternSyntaxError: (
        "Text that is not a pattern over events. The message shows the place with a caret, and what"
        " was expected there.",
        "See docs/composite.md for the language; filters of events are written as everywhere.",
    ),
    errors.DetectorFull: (
        "A detector holds as many runs, branches or waiting events as its limits allow, and its"
        " policy is to stop instead of dropping some.",
        "Give the pattern a `within` or a `partition by`, so that runs end sooner.",
        'Raise the limit, or choose `when_full="oldest"` or `"newest"`; drops are counted.',
    ),
    errors.Unsettled: (
        "A simulated network that does not come to rest.",
        "Look for clients that answer each other endlessly.",
    ),
    errors.ProtocolError: (
        "Bytes or messages that break the wire protocol. The connection is closed; nothing else is "
        "affected.",
        "Check that a Stentor broker, and not something else, is at that address and port.",
        "Check that tls:// is used for a TLS port, and only there.",
        "Check the releases on both sides: `stentor version`.",
    ),
    errors.Unreachable: (
        "No broker could be reached, or the connection was lost and could not be made again in "
        "time.",
        "Check that the broker is running: when it starts, it prints where it listens.",
        "Check the address. A broker that listens on 127.0.0.1 can be reached from its own machine "
        "only; let it listen on `0.0.0.0:7411` or `[::]:7411` for others.",
        "Check that a firewall lets the port through.",
    ),
    errors.AccessDenied: (
        "A broker with grants does not know who this is: the token is wrong or missing, or no "
        "grant names the certificate.",
        "Show the right token: `--token @FILE` or the variable STENTOR_TOKEN; in Python, `token=`.",
        "Or add a `[[grants]]` table to the broker's configuration, and run `stentor reload`.",
    ),
    errors.NotPermitted: (
        "The broker knows who this is, but the grant does not allow what was asked for: to publish "
        "or subscribe to this, to operate the broker, or to connect as a neighbor.",
        "A subscription must be covered by a permitted filter: narrow it.",
        "Or widen the grant: `publish`, `subscribe`, `operate`, `broker`.",
    ),
    errors.NameTaken: (
        "A name that is in use: that of a client, of a broker, or of a durable subscription that "
        "another client is reading. A client also gets this error when another one connects under "
        "its name.",
        "Give each client, and each broker of an overlay, a name of its own.",
        "To share the work of one subscription, use a group.",
    ),
    errors.JournalDamaged: (
        "Something in the journal is missing or was altered: a disk fault, a file that was cut "
        "off, an older copy that was put back. A broker does not serve such a journal. The message "
        "says which offsets and times are affected.",
        "Do not delete anything. Copy the data directory away.",
        "See what is affected: `stentor journal check DIRECTORY`.",
        "Save everything that is intact in a new stream, and keep the old file: "
        "`stentor journal repair DIRECTORY`. Then start the broker again.",
        "Look for the cause: the disk, or copies that were made while the broker ran.",
    ),
    errors.JournalUnavailable: (
        "The journal cannot be written, for example because the disk is full, or because its files "
        "were removed or replaced while the broker used them. What was being published was not "
        "stored and not passed on; its publishers are told so and may try again.",
        "Make room on the disk, or correct the permissions. The broker goes on by itself.",
        "If files are gone, put back those that were there; otherwise stop the broker, and see "
        "what is left with `stentor journal check`.",
        "Limit the journal: `retention.bytes` and `retention.seconds`.",
    ),
    errors.InvalidAddress: (
        "Text that is not an address of a broker, or an address at which a broker cannot listen.",
        "Write `host:port`, `[ipv6]:port`, `tls://host:port` or `unix:/path`.",
        "If the address is in use, something listens there already, perhaps another broker: stop "
        "it, or choose another port.",
    ),
    errors.TlsError: (
        "Certificates or keys that are missing, do not fit together, or are not trusted. The "
        "message says which file is wrong, or what the other side objects to.",
        "Give the authority that signed the other side's certificate: `--tls-ca`, `tls.ca`.",
        "Connect under a name that the certificate contains, and check the clocks.",
        "If the broker demands a certificate, show one: `--tls-certificate` and `--tls-key`.",
        "docs/operation.md has the commands that make an authority and certificates.",
    ),
    errors.Overloaded: (
        "A limit was reached: on clients, subscriptions, sizes, or on what may wait.",
        "The message names the limit; the broker's `limits` set it.",
        "Publish or connect more slowly; or use more brokers.",
    ),
    errors.LeaseExpired: (
        "A subscription has ended because its lease was not renewed in time.",
        "Renew well before the lease runs out, or subscribe without a lease.",
        "Subscribe again; a durable subscription continues where it was.",
    ),
    errors.NoReply: (
        "A request that was not answered in time, by a provider or by the broker.",
        "Check that a provider is connected, and that the request matches its filter.",
        "Wait longer: `timeout=`, `--timeout`.",
    ),
    errors.NobodyProvides: (
        "A request that matches no provider's filter, as far as the broker knows. It is a "
        "`NoReply` that comes at once.",
        "Start the provider first; `await bus.ready()` returns when its subscription is in force.",
        "Compare the request with the provider's filter: `stentor why-not FILTER JSON`.",
        "To reach providers that may come later, try again, or publish and subscribe instead.",
    ),
    errors.ProviderFailed: (
        "The function that answers this request has raised an error. `kind` is its class and "
        "`reason` its text; the log of the provider has the rest.",
        "Correct the request if that is the reason; otherwise look into the provider's log.",
    ),
    errors.ShuttingDown: (
        "A broker or a client that is closed, is being closed, or was never started.",
        "Connect to another broker; a client that knows several addresses does so by itself.",
    ),
    errors.LinkRefused: (
        "Two brokers that may not be linked: they are the same one, or the link would close a "
        "cycle.",
        "See which links there are: `stentor links list ADDRESS`.",
        "To move a broker, remove its old link first: `stentor links remove ADDRESS NEIGHBOR`.",
        "A link that would close a cycle waits in reserve, and is made when it no longer does.",
    ),
    errors.GroupElsewhere: (
        "A group of consumers that lives at another broker; the message says at which.",
        "Connect there to join it; the client library does so by itself.",
    ),
    errors.DurableElsewhere: (
        "A durable subscription that lives at another broker; the message says at which.",
        "Connect there to continue it; the client library does so by itself, and waits for that "
        "broker if it is down.",
        "If you would rather continue without that broker, subscribe with `takeover='30s'`.",
    ),
    errors.TransactionLost: (
        "A transaction has taken a notification that is no longer its own: another consumer of the "
        "group was given it, since it took longer than its deadline or lost its connection, or it "
        "has been dealt with. Nothing of the transaction was published.",
        "Continue with the next one. The consumer that has it now settles it, exactly once.",
        "If it happens often, give a longer `Retry(deadline=…)`, or call `extend` while you work.",
    ),
    errors.DataInUse: (
        "A data directory that another process is using. One directory belongs to one broker.",
        "Stop the other process, or give this broker a directory of its own: `--data`.",
    ),
    errors.Vetoed: (
        "A hook of the client forbade the operation.",
        "Look at the hooks that were registered with this client.",
    ),
    errors.HistoryGone: (
        "A part of a stream that was asked for is no longer in its journal, because retention has "
        "removed it.",
        "Keep more: `retention.seconds` and `retention.bytes`.",
        "Begin later: `since=`, `--since`.",
    ),
    errors.QueueOverflow: (
        "A subscriber that was too slow, under the policy that disconnects slow subscribers.",
        "Handle notifications faster, or share them in a group of consumers.",
        "Use the policy `spill`: what does not fit into memory is read from the journal again.",
        "Allow more notifications to wait: `limit=`.",
    ),
    errors.RedirectRefused: (
        "A broker named another one to go to, because it is shut down or a group lives there, and "
        "this client has no reason to trust that place: the address is less protected than those "
        "that it was given, or it does not know the host. It stays with the brokers that it was "
        "given; only a subscription of a group that lives elsewhere fails.",
        "List the broker, or name its host: `trust=`, `--trust`.",
        "Connect by `tls://` with the authority that signs your brokers (`ca`, `--tls-ca`): those "
        "for which it has signed are trusted.",
        "Have the broker tell others an address that they can use: its setting `advertise`.",
    ),
    errors.PipelineError: (
        "A step of the data pipeline that cannot be made, or cannot go on: Spark or Java is "
        "missing, or a query has failed; the message has the cause.",
        "Install what is missing: `pip install 'stentor[spark]'`, and Java 17 or later.",
        "Correct the cause and run the pipeline again; it continues from its checkpoints.",
    ),
    errors.PipelineDefinitionError: (
        "A pipeline with mistakes in its definition. The message names the file, line and key of "
        "each of them.",
        "Correct them and try `stentor pipeline check`, which with `--quick` needs no Spark.",
    ),
    errors.ArchiveError: (
        "A directory that is not an archive, is incomplete, cannot be opened or written, or is a "
        "Delta table of somebody else's; or events that do not fit into the archive because an "
        "attribute has another type there.",
        "Check the path: it is the directory that was given to `archive`. For an object store, "
        "check `storage_options` or the credentials in the environment.",
        "An archive of an earlier version becomes a Delta table with `stentor archive convert "
        "PATH`.",
        "Cast the attribute to the archive's type, or rename it.",
    ),
}


@cache
def explanations() -> dict[str, Explanation]:
    """All of them by code, in the order of the codes."""
    made = [
        Explanation(cls.code, cls.__name__, meaning, tuple(steps))
        for cls, (meaning, *steps) in _TEXTS.items()
    ]
    return {each.code: each for each in sorted(made, key=lambda each: each.code)}


def as_markdown(explanation: Explanation) -> str:
    """One entry of the page."""
    lines = [f"### {explanation.code} {explanation.name}", "", _filled(explanation.meaning), ""]
    lines += [_filled(f"- {step}", indent="  ") for step in explanation.steps]
    return "\n".join(lines)


def _filled(text: str, indent: str = "") -> str:
    return textwrap.fill(
        text, 100, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


_FAMILIES: Final = {
    "STN-0": "General",
    "STN-1": "Values and notifications",
    "STN-2": "Filters",
    "STN-3": "Matching",
    "STN-4": "Networks and configuration",
    "STN-5": "Simulation",
    "STN-6": "The live service",
    "STN-7": "The data pipeline",
}


def page() -> str:
    """The whole page, `docs/errors.md`."""
    parts = [
        "# Errors",
        _filled(
            "Every error that Stentor raises on purpose has a code that never changes. Logs, the "
            "command line and the protocol show it; in Python it is the attribute `code` of the "
            "exception, whose class is the name beside it in `stentor.errors`. "
            "`stentor explain STN-606` prints one of these entries."
        ),
    ]
    family = ""
    for code, explanation in explanations().items():
        if code[:5] != family:
            family = code[:5]
            parts.append(f"## {_FAMILIES[family]}")
        parts.append(as_markdown(explanation))
    return "\n\n".join(parts) + "\n"

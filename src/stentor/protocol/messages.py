"""Every message of the wire protocol, as types. `docs/protocol.md` is the same in prose.

A message is a MessagePack array: a number that says what it is, then its fields in the order given
here. A reader ignores fields that it does not know at the end and fills in defaults for those that
are missing, so that fields can be added; anything else that does not fit is an error that costs
the connection.

Three words are used throughout. A *stream* is the journal of one broker: what was published there,
in order, each under an *offset*; the stream's id is unique to that journal for ever. A *position*
is an offset up to which everything of a stream has been dealt with. A request carries a *number*
that the sender chooses, and the answer repeats it.

Whatever can be many has a limit, in its type. A list or map that claims more is refused when its
length is read, before anything of it is made.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, TypeAlias, TypeVar

from msgspec import Meta, Struct, field
from msgspec.msgpack import Decoder, Encoder

#: Versions of the protocol that this release speaks, best first.
VERSIONS: Final = (1,)

#: Notifications in one message, brokers or streams, filters, names of groups, addresses.
MAX_ITEMS: Final = 100_000
MAX_STREAMS: Final = 10_000
MAX_FILTERS: Final = 50_000
MAX_GROUPS: Final = 1_000
MAX_ADDRESSES: Final = 1_000
#: Parts of a pattern that are detected by themselves, and brokers on the way between two.
MAX_PARTS: Final = 50
MAX_WAY: Final = 1_000
#: Attributes that a client says it has.
MAX_CLAIMS: Final = 64
#: Keys of a rendezvous, and filters of an inbox.
MAX_KEYS: Final = 1_000
MAX_INBOX: Final = 500
#: Attributes that a reader names.
MAX_NAMES: Final = 1_024
#: Characters of a filter that a client writes, and of a name. Brokers may merge filters of clients
#: into longer ones.
MAX_FILTER: Final = 64 * 1024
MAX_TEXT: Final = 1_024

T = TypeVar("T")
_Items: TypeAlias = Annotated[list[T], Meta(max_length=MAX_ITEMS)]
_OfStreams: TypeAlias = Annotated[list[T], Meta(max_length=MAX_STREAMS)]
_Filters: TypeAlias = Annotated[list[T], Meta(max_length=MAX_FILTERS)]
_Keys: TypeAlias = Annotated[list[T], Meta(max_length=MAX_KEYS)]
_Addresses: TypeAlias = Annotated[list[str], Meta(max_length=MAX_ADDRESSES)]
_Filter: TypeAlias = Annotated[str, Meta(max_length=MAX_FILTER)]
_Text: TypeAlias = Annotated[str, Meta(max_length=MAX_TEXT)]
_Inbox: TypeAlias = Annotated[list[_Filter], Meta(max_length=MAX_INBOX)]

#: A broker's journal, for ever: its name and something random.
StreamId: TypeAlias = str
#: How far each stream has been dealt with.
Positions: TypeAlias = dict[StreamId, int]
_Positions: TypeAlias = Annotated[Positions, Meta(max_length=MAX_STREAMS)]
#: A filter between brokers is known by its text, or by the id of one subscription.
Key: TypeAlias = str | tuple[str, int]

#: The stream of notifications that no journal holds: at most once.
VOLATILE: Final = ""


class _Message(Struct, array_like=True, gc=False):
    pass


# -- both kinds of connection


class Hello(_Message, tag=1):
    """The first message, from the side that connects."""

    versions: Annotated[list[int], Meta(max_length=MAX_ADDRESSES)]
    #: "client", "broker" or "operator".
    role: str
    #: Of the client or broker.
    name: str
    token: str | None = None
    #: Brokers: the own stream, and the addresses where others may connect, best first.
    stream: StreamId = ""
    addresses: _Addresses = field(default_factory=list)
    #: Brokers: how they route, on which linked ones have to agree; empty for the default.
    terms: str = ""
    #: Brokers: whether the receiver is above the sender, in a hierarchy.
    below: bool = False
    #: Brokers: whether the link is for as long as it is needed, on a rendezvous overlay.
    visits: bool = False
    #: Clients: what they say of themselves, by which rules make them members of scopes.
    attributes: Annotated[dict[str, Any], Meta(max_length=MAX_CLAIMS)] = field(default_factory=dict)


class Welcome(_Message, tag=2):
    """The answer: the connection is open."""

    version: int
    broker: str
    stream: StreamId
    #: Where others may connect to it, best first.
    addresses: _Addresses = field(default_factory=list)
    #: The newest epoch and sequence number that this client has published here.
    published: tuple[int, int] | None = None
    #: Notifications that the client may have on their way unanswered.
    window: int = 0
    #: Bytes of the largest frame that the broker accepts.
    max_frame: int = 0
    #: Seconds of silence after which the broker gives the connection up.
    timeout: float = 0.0
    #: The producer in the ids of what the client publishes; empty for its name.
    producer: str = ""
    #: To brokers: how this one routes; empty for the default.
    terms: str = ""
    #: The broker's clock, in seconds since 1970: by it, and not by those of publishers, moments are
    #: compared.
    time: float = 0.0


class Failure(_Message, tag=3):
    """A request failed, or (without a number) the connection is about to be closed."""

    code: str
    message: str
    number: int | None = None


class Ping(_Message, tag=4):
    """Asks for a sign of life."""


class Pong(_Message, tag=5):
    """Is one."""


class Goodbye(_Message, tag=6):
    """The sender will close the connection, having sent everything it had to."""

    reason: str = ""
    #: Brokers that the receiver may turn to instead.
    instead: _Addresses = field(default_factory=list)


# -- client to broker


class Publish(_Message, tag=10):
    """Notifications, each encoded, in the order in which they are published.

    All numbers of one client rise. `Published` answers, or `Rejected` for those that it names.
    """

    number: int
    items: _Items[bytes]
    #: Not journaled, lost with the connection or the broker: at most once.
    volatile: bool = False
    #: All or none: a transaction.
    atomic: bool = False
    #: Keys under which items (by index) are kept as last values.
    retain: Annotated[dict[int, str], Meta(max_length=MAX_ITEMS)] = field(default_factory=dict)


class Settlement(Struct, array_like=True, frozen=True, gc=False):
    """How the notifications of a durable subscription or a group are settled one by one."""

    #: How often each is given at most; 0 for as often as it takes.
    attempts: int = 0
    #: Seconds until a refused one comes again: so many at first, twice as many each time, at most.
    least: float = 1.0
    most: float = 60.0
    #: Seconds after which one that was begun and not settled comes again; 0 for never.
    deadline: float = 0.0
    #: Whether one that was given in vain as often as allowed is published as a dead letter.
    dead_letter: bool = False
    #: Whether later ones of the same publisher may come before one that was refused.
    overtake: bool = False
    #: Whether those of higher priority come first.
    ranked: bool = False


#: What stands in place of a filter where something is to be detected. It is no filter, so a broker
#: that does not know detection refuses it, and does not take it for a plain subscription.
DETECT: Final = "detect"


class Detection(Struct, array_like=True, gc=False):
    """What a broker is to detect for a subscriber: a pattern over events."""

    #: The pattern as JSON: `pattern`, `events`, and perhaps a `name`.
    pattern: _Filter
    #: When an event is consumed: "best_effort", "guaranteed" or "probabilistic".
    policy: _Text = "best_effort"
    #: With "guaranteed", seconds by which an event may come to its broker later than its own time
    #: says; with "probabilistic", how likely it has to be that nothing older comes.
    lateness: float = 2.0
    threshold: float = 0.99
    #: "standing", or "one_shot": the first detection of a partition is the last.
    mode: _Text = "standing"
    #: Where it is detected: one of the distribution policies of `stentor.composite.distribution`.
    placement: _Text = "minimum_latency"


class Assignment(Struct, array_like=True, gc=False):
    """What a broker is to detect, and by whose rights."""

    detection: Detection
    #: The grant of whoever has asked for it, and what they are to scopes.
    owner: str | None = None
    component: _Text = ""
    attributes: Annotated[dict[str, Any], Meta(max_length=MAX_KEYS)] = field(default_factory=dict)
    #: Patterns that are a part of it, of which the detections come from elsewhere.
    parts: Annotated[list[_Filter], Meta(max_length=MAX_PARTS)] = field(default_factory=list)


class Subscribe(_Message, tag=11):
    """Ask for what a filter matches; deliveries carry the number.

    With a list it makes an inbox, which asks for what any of the filters matches; `Amend` changes
    them. If the durable subscription or the group exists, what it asks for stays as it is;
    `Amended` says how that differs from this list.
    """

    number: int
    filter: _Filter | _Inbox
    #: Notifications that may be delivered before more `Credit` comes.
    credit: int
    #: Name under which the position is kept across connections.
    durable: _Text | None = None
    #: History: seconds since 1970 in UTC from which on; 0 for all there is; nil for none.
    since: float | None = None
    #: Continue behind these; used to take up a subscription after a connection was lost.
    positions: _Positions | None = None
    #: Share the notifications with the other members of a group.
    group: _Text | None = None
    #: How a group chooses: "round_robin", "least_loaded" or "key:ATTRIBUTE".
    choice: _Text = "round_robin"
    #: Seconds for which the subscription holds unless renewed.
    lease: float | None = None
    #: Begin with the last value of every key that the filter matches.
    retained: bool = False
    #: What happens when more than `limit` wait: "spill", "block", "drop_oldest", "drop_newest",
    #: "disconnect". Journaled notifications are never dropped by "spill" and "block": they are read
    #: again. With "block", publishers wait rather than lose volatile ones, until it has `Yielded`.
    overflow: _Text = "spill"
    limit: int = 0
    #: What comes while it is connected, at most once; nothing is read again, and it is answered at
    #: once.
    volatile: bool = False
    #: Seconds for which the broker where a durable subscription lives may be out of reach before
    #: another one takes it over. None: it is waited for, however long.
    takeover: float | None = None
    #: The broker where it lives cannot be reached by the client: let it move here.
    here: bool = False
    #: Notifications are settled one by one, by `Settle`, and not confirmed by positions.
    settlement: Settlement | None = None
    #: Seconds after which a notification is too old to be delivered, by its own time.
    expires: float | None = None
    #: Have this detected, and ask for what is found instead of for `filter`.
    detect: Detection | None = None
    #: As `Subscribed` said: the client does not go on with one that was reset or deleted since.
    born: int = 0


class Unsubscribe(_Message, tag=12):
    """No more of it; `Ended` answers. `forget` deletes what is kept for a durable one."""

    number: int
    forget: bool = False


class Renew(_Message, tag=13):
    """Extend a lease from now on; `Subscribed` answers."""

    number: int


class Credit(_Message, tag=14):
    """So many notifications more may be delivered. Between brokers the number is 0."""

    number: int
    more: int


class Confirm(_Message, tag=15):
    """The subscriber has dealt with everything up to these positions.

    A member of a group names the offset that it has dealt with last, in the order of delivery.
    With a `request` number, `Done` answers as soon as that is on disk.
    """

    number: int
    positions: _Positions
    request: int | None = None


class Advertise(_Message, tag=16):
    """The client will publish what the filter matches. `Done` answers.

    With `demand`, the broker tells at once and after every change what is asked for of it.
    """

    number: int
    filter: _Filter
    demand: bool = False
    #: Do not wait until it is in force: what is published before may not reach everybody.
    volatile: bool = False


class Unadvertise(_Message, tag=17):
    """It no longer will. `Done` answers."""

    number: int


class Ask(_Message, tag=18):
    """A question to the broker; `Done` answers. Operators ask more than clients may.

    "offers" {overlapping}; "streams" {since}; "where" {broker}; "brokers" {}; "cancel" {id};
    "provided" {request}; "status" {}; "links" {add, remove}; "drain" {};
    "durables" {name, do: "reset" | "delete" | "move", to};
    "why" {notification, from} and "why" {client, stream, offset, data}.
    """

    number: int
    what: _Text
    arguments: dict[str, Any] = field(default_factory=dict)


class Read(_Message, tag=19):
    """Read a journal that the broker has; `Stretch` answers, as often as it takes.

    For who reads in bulk and keeps the position: there is no subscription, and nothing is routed.
    """

    number: int
    stream: _Text
    first: int
    #: Not beyond this offset; 0 for the end of the journal.
    last: int = 0
    filter: _Filter = ""
    #: Send no items, but when each was and how large: "_time", or the name of an attribute.
    times: _Text = ""
    #: Send items without their payloads.
    headers: bool = False
    #: Of the items, these attributes are enough; None for all.
    attributes: Annotated[list[_Text], Meta(max_length=MAX_NAMES)] | None = None


class Amend(_Message, tag=20):
    """An inbox asks for more filters, and for some no longer.

    `Done` answers when the new ones are in force, as for `Subscribed`, and on disk if the inbox is
    durable.
    """

    number: int
    #: The number of the inbox.
    subscription: int
    added: _Inbox
    removed: _Inbox = field(default_factory=list)


class Refused(Struct, array_like=True, frozen=True, gc=False):
    """A notification that the subscriber could not deal with."""

    stream: StreamId
    offset: int
    #: Seconds until it comes again; nil for what the settlement says.
    delay: float | None = None
    cause: _Text = ""
    #: How often it had been given, with that time; if it is other than the broker says, it took too
    #: long and has been given again meanwhile.
    attempt: int = 1


class Settle(_Message, tag=21):
    """What has become of notifications, one by one.

    Offsets that the subscriber does not hold, or no longer, mean nothing. With a `request` number,
    `Done` answers as soon as that is on disk.
    """

    number: int
    #: Those that were dealt with, and those that the application has and has not settled.
    done: Annotated[dict[StreamId, _Items[int]], Meta(max_length=MAX_STREAMS)]
    begun: Annotated[dict[StreamId, _Items[int]], Meta(max_length=MAX_STREAMS)] = field(
        default_factory=dict
    )
    #: Each is answered by `Withdrawn`.
    refused: _Items[Refused] = field(default_factory=list)
    #: Those that take longer: so many seconds from now on.
    extended: _Items[tuple[StreamId, int, float]] = field(default_factory=list)
    request: int | None = None
    #: As `begun`, for those that were given more than once: stream, offset, and how often.
    again: _Items[tuple[StreamId, int, int]] = field(default_factory=list)


class Commit(_Message, tag=22):
    """Publish, and settle what was taken, as one step: both are on disk, or neither.

    `Done` answers; `Failure` if nothing of it was done.
    """

    number: int
    #: Notifications, each encoded.
    items: _Items[bytes]
    #: By the number of the subscription and by stream, the offsets of what was taken.
    settled: Annotated[
        dict[int, Annotated[dict[StreamId, _Items[int]], Meta(max_length=MAX_STREAMS)]],
        Meta(max_length=MAX_STREAMS),
    ]
    #: Producer, epoch and sequence number by which the transaction is known again, if it is sent
    #: once more over another connection.
    name: tuple[_Text, int, int]
    #: Keys under which items (by index) are kept as last values.
    retain: Annotated[dict[int, str], Meta(max_length=MAX_ITEMS)] = field(default_factory=dict)


# -- broker to client


class Published(_Message, tag=30):
    """Everything up to this number is in the journal on disk (volatile: was passed on)."""

    through: int


class Rejected(_Message, tag=31):
    """Of one `Publish`, the items with these indexes were refused; the others were taken."""

    number: int
    items: _Items[int]
    code: str
    message: str


class Subscribed(_Message, tag=32):
    """The subscription is in force: what is published anywhere from now on will come."""

    number: int
    #: Seconds for which it holds, if it is a lease.
    lease: float | None = None
    #: Whether a durable subscription of this name existed.
    resumed: bool = False
    #: The broker's clock, in seconds since 1970: what `since` is compared with later.
    time: float = 0.0
    #: Of a durable subscription, the term in which it was made or reset; see `Home`.
    born: int = 0


class Deliver(_Message, tag=33):
    """Notifications for a subscription. Offsets rise; none for `VOLATILE` and last values."""

    number: int
    stream: StreamId
    offsets: _Items[int]
    items: _Items[bytes]
    #: Last values that were kept, sent before anything else.
    retained: bool = False
    #: How often these have been given, with this time.
    attempt: int = 1


class Progress(_Message, tag=34):
    """Up to these positions nothing else is to come for the subscription."""

    number: int
    positions: _Positions


class Gap(_Message, tag=35):
    """These offsets of the stream are gone, by retention: what was among them will not come."""

    number: int
    stream: StreamId
    first: int
    last: int


class Ended(_Message, tag=36):
    """The subscription is over. No code if the client wanted it so."""

    number: int
    code: str | None = None
    message: str = ""
    #: For what lives elsewhere: the addresses of its broker, best first.
    instead: _Addresses = field(default_factory=list)
    #: This broker cannot reach that one now; or, without addresses, will be the one itself soon.
    cut_off: bool = False


class Demand(_Message, tag=37):
    """What is asked for of an advertisement: filters; none means that nobody listens."""

    number: int
    filters: _Filters[str]


class Done(_Message, tag=38):
    """The answer to a request."""

    number: int
    data: Any = None


class Stretch(_Message, tag=39):
    """A stretch of a journal: what the filter matches up to and including `through`.

    More follows, unless that is the end of the journal or of what was asked for.
    """

    number: int
    stream: StreamId
    offsets: _Items[int]
    items: _Items[bytes]
    through: int
    #: The last offset of the journal, and the first that still exists: what was asked for below
    #: that is gone.
    head: int
    low: int = 1
    #: Instead of the items, if times were asked for.
    times: _Items[float | None] = field(default_factory=list)
    #: The same, how many bytes each item has.
    sizes: _Items[int] = field(default_factory=list)


class Amended(_Message, tag=40):
    """An inbox asks for more from here on, and for some no longer.

    All members of a group are told, and who takes up an inbox that asks for something else.
    """

    number: int
    added: _Inbox
    removed: _Inbox


class Yielded(_Message, tag=49):
    """Publishers no longer wait for the subscription ("block"): they have, for so many seconds.

    Until it has caught up it is served as by "spill", and volatile notifications that do not fit
    are dropped.
    """

    number: int
    seconds: float


class Withdrawn(_Message, tag=41):
    """These were delivered and are no longer for this subscriber: they come again, here or not.

    One was refused or took too long, and others have to wait behind it; or others get them.
    """

    number: int
    stream: StreamId
    offsets: _Items[int]
    #: The refusal that this answers, or 0.
    refused: int = 0


# -- broker to broker


class Subscriptions(_Message, tag=50):
    """Filters that the sender no longer asks for and that it now does, in one step."""

    added: _Filters[tuple[Key, str]]
    removed: _Filters[Key]


class Advertisements(_Message, tag=51):
    """The same for what is offered on the sender's side."""

    added: _Filters[tuple[Key, str]]
    removed: _Filters[Key]


class Forward(_Message, tag=52):
    """Notifications that entered at the broker of this stream, on their way; offsets rise.

    Those of volatile ones count apart from those of the journal, and also rise across restarts.
    """

    stream: StreamId
    offsets: _Items[int]
    items: _Items[bytes]
    volatile: bool = False


class Origin(Struct, array_like=True, frozen=True, gc=False):
    """A broker as others know it."""

    stream: StreamId
    broker: str
    #: Where others may connect to it, best first.
    addresses: tuple[str, ...] = ()


class Streams(_Message, tag=53):
    """Brokers that can be reached through the sender, and streams that no longer can.

    A stream that is named as up begins afresh: what was on its way before may be lost, and who
    needs all of it has to ask its journal.
    """

    up: _OfStreams[Origin]
    down: _OfStreams[StreamId]


class Probe(_Message, tag=54):
    """Goes to every broker, behind all that the origin has said before; `Echo` comes back."""

    origin: StreamId
    number: int


class Echo(_Message, tag=55):
    """All brokers on the sender's side have had the probe; the last offset of each stream.

    Streams behind brokers that say nothing are not among them.
    """

    origin: StreamId
    number: int
    heads: _Positions
    #: The sender has had the probe, and others on its side have not yet answered.
    waits: bool = False


class Fetch(_Message, tag=56):
    """Read a journal: sent towards `stream`, answered by `Chunk` towards `origin`."""

    stream: StreamId
    origin: StreamId
    number: int
    filter: str
    #: From this offset on, if it is not 0, else from this time on (seconds since 1970).
    first: int
    since: float = 0.0
    #: Last values instead of history.
    retained: bool = False


class Chunk(_Message, tag=57):
    """A stretch of a stream: what the filter matches up to and including `through`."""

    origin: StreamId
    number: int
    stream: StreamId
    offsets: _Items[int]
    items: _Items[bytes]
    through: int
    #: The last offset of the stream; the stretch ends there if it equals `through`.
    head: int
    #: The first offset that still exists.
    low: int = 1
    #: For last values: when each was published, and its key.
    times: _Items[float] = field(default_factory=list)
    keys: _Items[str] = field(default_factory=list)
    #: The first offset that was looked at; 0 if that is not said.
    first: int = 0


class Mark(_Message, tag=58):
    """The stream has come to this offset; it follows all that was forwarded before.

    Towards the broker of the stream, when that has come up: how far it was known to be. If that is
    further than its journal goes, the journal is an older copy.
    """

    stream: StreamId
    head: int


class Pulse(_Message, tag=72):
    """What entered the stream before `time`, by the clock of its broker, lies up to the `head`.

    It follows all that was forwarded before. Towards the broker of the stream, with a negative
    head: somebody there wants to hear this for a while.
    """

    stream: StreamId
    head: int
    time: float = 0.0


class Groups(_Message, tag=59):
    """Groups that live at the broker with this stream.

    What was said before is void, unless these are `more`: a long list comes in pieces, and what is
    new follows it.
    """

    stream: StreamId
    names: Annotated[list[_Text], Meta(max_length=MAX_GROUPS)]
    more: bool = False
    #: Rises with all that is said of this stream, also across restarts: nothing counts twice.
    number: int = 0


class LinkState(Struct, array_like=True, frozen=True, gc=False):
    """The links of one broker of a graph and their costs, and which streams enter there.

    Of two of the same broker, the one with the higher number counts.
    """

    broker: StreamId
    number: int
    links: Annotated[tuple[tuple[StreamId, int], ...], Meta(max_length=MAX_STREAMS)]
    streams: Annotated[tuple[Origin, ...], Meta(max_length=MAX_STREAMS)] = ()


class Links(_Message, tag=62):
    """In a graph: links of brokers, as far as the sender knows, that may be new to the receiver."""

    states: _OfStreams[LinkState]


class Home(Struct, array_like=True, frozen=True, gc=False):
    """Where a durable subscription lives; see `stentor.node.homes`."""

    name: _Text
    #: Rises whenever it moves or ends.
    term: int
    #: None if it was deleted.
    broker: Origin | None
    #: The time from which on it asks for everything.
    since: float = 0.0
    #: The stream of the broker that had it before and gave it away.
    giver: StreamId = ""
    #: The grant that it belongs to.
    owner: str | None = None
    #: The term in which it was made or reset: what was made before is something else.
    born: int = 0


class Homes(_Message, tag=63):
    """Where durable subscriptions live, as far as that may be new to the receiver."""

    homes: Annotated[list[Home], Meta(max_length=MAX_GROUPS)]


class Copy(_Message, tag=64):
    """What is kept of a durable subscription elsewhere, sent towards `to`.

    Without `to` it is for the neighbor, in case that the sender is lost.
    """

    name: _Text
    term: int
    data: bytes
    to: StreamId = ""
    #: The sender had it and has let go of it: nobody knows more.
    given: bool = False
    #: The stream of a broker that says it again until it hears that it is `Kept`.
    origin: StreamId = ""


class Kept(_Message, tag=77):
    """What a `Copy` said is on disk at the home of the durable subscription; sent towards `to`."""

    name: _Text
    #: As in the copy.
    term: int
    to: StreamId


class Seek(_Message, tag=65):
    """Goes to every broker: who has a copy of the durable subscription sends it to `origin`."""

    name: _Text
    origin: StreamId
    #: Rises with each that the origin sends, also across restarts.
    number: int


class Claim(_Message, tag=66):
    """Let the durable subscription move from `stream`, towards which this goes, to `origin`."""

    name: _Text
    stream: StreamId
    origin: StreamId
    #: The grant of whoever asks for it.
    owner: str | None = None


class Wanted(_Message, tag=70):
    """What durable subscriptions at `home` still need of a stream; sent towards it.

    Infinity stands for nothing.
    """

    stream: StreamId
    home: StreamId
    #: The first offset, for those that have a position; and the time from which on others do.
    first: float
    since: float


class Census(_Message, tag=73):
    """How many detectors has the broker of `stream`, towards which this goes, and any of these?"""

    stream: StreamId
    origin: StreamId
    number: int
    #: Of detectors, as `Counted` names them.
    keys: Annotated[list[_Text], Meta(max_length=MAX_KEYS)]
    #: Filters of which it is to be said whether somebody there offers what they match.
    filters: Annotated[list[_Filter], Meta(max_length=MAX_INBOX)] = field(default_factory=list)


class Counted(_Message, tag=74):
    """The answer, sent towards the broker that has asked."""

    stream: StreamId
    number: int
    #: Who answers: how many detectors are there, and notifications in a second enter there.
    host: StreamId
    detectors: int
    rate: float
    #: Those of the keys that are there.
    keys: Annotated[list[_Text], Meta(max_length=MAX_KEYS)]
    #: The brokers that it has come through, the one that answers first.
    way: Annotated[list[_Text], Meta(max_length=MAX_WAY)]
    #: Places of those filters that overlap an advertisement there.
    offered: Annotated[list[int], Meta(max_length=MAX_INBOX)] = field(default_factory=list)


class Host(_Message, tag=75):
    """Detect this at the broker of `stream`, towards which this goes, for so many seconds.

    It is said again before they are over. With a lease of 0 it is needed no longer.
    """

    stream: StreamId
    origin: StreamId
    assignment: Assignment
    lease: float


class Hosting(_Message, tag=76):
    """What became of that, sent towards the broker that has asked: also later, when it ends."""

    stream: StreamId
    host: StreamId
    key: _Text
    in_force: bool = False
    #: Why it is not detected there, or no longer.
    code: _Text | None = None
    message: str = ""


class Types(_Message, tag=67):
    """On a rendezvous overlay: what the sender's journals hold, by event type, or who offers what.

    See `stentor.routing.rendezvous.keys`. With each key comes an offset of the sender's own stream:
    up to there it holds nothing under this key. Up to `heads` its streams hold nothing under keys
    that it has not named.
    """

    #: The sender's own.
    stream: StreamId
    added: _Keys[tuple[_Text, int]]
    removed: _Keys[_Text]
    heads: _Positions


class Watch(_Message, tag=68):
    """On a rendezvous overlay: tell me who has something under these keys, or no longer."""

    added: _Keys[_Text]
    removed: _Keys[_Text]


class Sources(_Message, tag=69):
    """The answer, whenever it changes: for each key all brokers that have something under it."""

    found: _Keys[tuple[_Text, Annotated[list[StreamId], Meta(max_length=MAX_STREAMS)]]]


class Scopes(_Message, tag=71):
    """The scope graph, as of an epoch; whoever knows of no later one takes it and passes it on.

    It is said before anything that was published in that epoch, on every link.
    """

    #: The broker that orders the changes: its stream, its name and its addresses.
    owner: Origin
    epoch: int
    #: One change, if the receiver has the epoch before; else the whole graph.
    change: bytes | None = None
    after: int = 0
    whole: bytes | None = None


#: A client that is a member of a scope by a rule: its name, what it says of itself as far as
#: somebody vouches for that, and what it has subscribed to.
RosterMember: TypeAlias = tuple[
    _Text, Annotated[dict[str, Any], Meta(max_length=MAX_CLAIMS)], _Inbox
]


class Roster(_Message, tag=78):
    """Members by rules at the broker with this stream, among whom a policy may choose.

    What was said before is void, unless these are `more`.
    """

    stream: StreamId
    #: Rises with all that is said of this stream, also across restarts: nothing counts twice.
    number: int
    put: Annotated[list[RosterMember], Meta(max_length=MAX_GROUPS)]
    drop: Annotated[list[_Text], Meta(max_length=MAX_GROUPS)]
    more: bool = False


class Handover(_Message, tag=60):
    """A piece of a file of a broker that is being removed, for the neighbor to take over.

    The files are `journal.db` and then `journal.mark`; `last` ends a file. Before them come
    those of journals that the sender had taken over itself, as `1/journal.db` and so on. When
    the neighbor has everything on disk and verified, it answers `HandedOver`; if it cannot,
    `Failure`. Then comes `released`, with the stream as data: the sender has let go of it. Only
    now the neighbor answers for it, and says `HandedOver` again.
    """

    file: str
    data: bytes
    last: bool


class HandedOver(_Message, tag=61):
    """What was handed over is stored; after `released`, the neighbor answers for it."""


FromClient: TypeAlias = (
    Publish
    | Subscribe
    | Unsubscribe
    | Renew
    | Credit
    | Confirm
    | Advertise
    | Unadvertise
    | Ask
    | Read
    | Amend
    | Settle
    | Commit
)
FromBroker: TypeAlias = (
    Published
    | Rejected
    | Subscribed
    | Deliver
    | Progress
    | Gap
    | Ended
    | Demand
    | Done
    | Stretch
    | Failure
    | Amended
    | Yielded
    | Withdrawn
)
BetweenBrokers: TypeAlias = (
    Subscriptions
    | Advertisements
    | Forward
    | Streams
    | Probe
    | Echo
    | Fetch
    | Chunk
    | Mark
    | Pulse
    | Groups
    | Links
    | Homes
    | Copy
    | Seek
    | Claim
    | Kept
    | Wanted
    | Census
    | Counted
    | Host
    | Hosting
    | Types
    | Watch
    | Sources
    | Scopes
    | Roster
    | Handover
    | HandedOver
    | Credit
)
Both: TypeAlias = Hello | Welcome | Failure | Ping | Pong | Goodbye
AnyMessage: TypeAlias = FromClient | FromBroker | BetweenBrokers | Both

encoder: Final = Encoder()
decoder: Final[Decoder[AnyMessage]] = Decoder(AnyMessage)

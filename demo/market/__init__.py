"""The live demo: market data through five broker processes, one of which is killed on the way.

    brokers   the processes, and what they say about themselves
    cast      who publishes what, and who wants what
    account   what was published and delivered, held against the formal model
    story     what happens, in order
    pipeline  the same trades on Spark, by `market.toml`
    plot      a picture of what Spark made of them
    view      what a person sees of it
    report    what came of it

Everything that it prints is counted or computed while it runs.
"""

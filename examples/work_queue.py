"""Work that several processes share: python work_queue.py, as often as you like

Each job goes to one worker; if that one dies or takes longer than the deadline, to another. Urgent
jobs come first, and jobs that wait outlive the workers:

    stentor publish '{"job": "resize", "file": "cat.png"}'
    stentor publish '{"job": "resize", "file": "dog.png"}' --priority 9
"""

import sys

import stentor
from stentor import Retry

if __name__ == "__main__":
    with (
        stentor.connect_sync(*sys.argv[1:]) as bus,
        bus.subscribe(
            "job = 'resize'",
            group="resizing",
            durable="resizing",
            order="priority",
            window=1,  # a worker takes the next job when it is done with the last
            retry=Retry(attempts=5, deadline="30s"),
        ) as jobs,
    ):
        print("waiting for jobs", flush=True)
        for job in jobs:
            print(f"{bus.name} resizes {job['file']}", flush=True)
            bus.publish({"done": job["file"], "worker": bus.name})
            job.ack()

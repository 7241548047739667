import asyncio, sys, tempfile, time
from pathlib import Path
sys.path.insert(0, "/work/main/src")
from nursery import Nursery
from overlay_processes import Overlay
from recorder import Recorder
from stentor.client import connect
async def main(o):
    t=time.time()
    o.line(3); 
    await o.linked(); print("linked", time.time()-t)
    r=Recorder()
    async with connect(o["b1"].address, name="p") as p, connect(o["b3"].address) as s:
        pub=r.publisher(p)
        async with r.subscribed(s, "s", "x > 10"):
            r.quiescent()
            for i in range(100):
                await pub.publish({"x": i})
            await r.settled(10)
            print(r.check())
            print("killing")
            t=time.time()
            o["b2"].restart(); 
            for i in range(100,200):
                await pub.publish({"x": i})
            await r.settled(10)
            print(r.check(), time.time()-t)
            t=time.time()
            o["b1"].restart(); 
            for i in range(100,200):
                await pub.publish({"x": i})
            await r.settled(10)
            print(r.check(), time.time()-t)
            t=time.time()
            o["b3"].restart(); 
            for i in range(100,200):
                await pub.publish({"x": i})
            await r.settled(10)
            print(r.check(), time.time()-t)
t=time.time()
n=Nursery(); print("nursery", time.time()-t)
with tempfile.TemporaryDirectory() as d, Overlay(Path(d), n) as o:
    try: asyncio.run(main(o))
    finally: print(o.tail())
n.close()

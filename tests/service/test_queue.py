"""Turns: nobody keeps all others out, whatever they ask and however long that takes."""

import threading

from noisegate.server.queue import AT_ONCE, FairQueue


def test_long_work_of_one_person_leaves_room_for_others():
    queue, done, gate = FairQueue(AT_ONCE + 1), threading.Event(), threading.Event()
    begun, started = [], threading.Semaphore(0)

    def long():
        begun.append(1)
        started.release()
        gate.wait(60)

    for _ in range(AT_ONCE + 5):
        queue.submit("greedy", long)
    queue.submit("modest", done.set)
    assert done.wait(30)
    assert all(started.acquire(timeout=30) for _ in range(AT_ONCE))
    assert (len(begun), queue.running, queue.depth) == (AT_ONCE, AT_ONCE, 5)
    gate.set()
    queue.close()
    assert (len(begun), queue.running, queue.depth) == (AT_ONCE + 5, 0, 0)


def test_what_waits_is_finished_when_the_service_ends():
    queue, gate, order = FairQueue(8), threading.Event(), []
    for person in ("a", "b"):
        for place in range(20):
            queue.submit(person, lambda said=(person, place): (gate.wait(60), order.append(said)))
    ending = threading.Thread(target=queue.close)
    ending.start()
    gate.set()
    ending.join(30)
    assert not ending.is_alive()
    assert len(order) == 40

"""locust: four users at once ask for chats, whole and streamed, three times each; no request fails."""
import gevent
import locust  # before others: it makes their sockets wait its way
from asked import MODEL, URL, USER
from locust.env import Environment


class Asker(locust.HttpUser):
    host = URL
    asked = 0

    @locust.task
    def ask(self):
        body = {"model": MODEL, "messages": USER, "max_tokens": 8, "temperature": 0}
        with self.client.post("/v1/chat/completions", json=body, name="whole", catch_response=True) as reply:
            if reply.status_code == 200 and not reply.json()["choices"][0]["message"]["content"]:
                reply.failure("no text")
        with self.client.post("/v1/chat/completions", json={**body, "stream": True}, name="stream", stream=True,
                              catch_response=True) as reply:
            if list(reply.iter_lines())[-2:] != [b"data: [DONE]", b""]:
                reply.failure("the stream does not end")
        self.asked += 1
        if self.asked == 3:
            raise locust.exception.StopUser


environment = Environment(user_classes=[Asker])
runner = environment.create_local_runner()
runner.start(4, spawn_rate=4)
with gevent.Timeout(200):
    while environment.stats.total.num_requests < 24:
        gevent.sleep(0.1)
    while runner.user_count > 0:
        gevent.sleep(0.1)
runner.quit()
assert not environment.stats.errors, list(environment.stats.errors.values())
assert environment.stats.total.num_requests == 24, environment.stats.total.num_requests

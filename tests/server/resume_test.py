"""A client that lost its stream comes back to it; other streams end with their clients."""
import json
import re

from serving import ServerCase, main

BODY = {"prompt": "The river", "max_tokens": 300, "stream": True, "temperature": 0, "ignore_eos": True}


def read(response, lines=None):
    """Reads that many lines, or all there are; without comments."""
    out = []
    while (lines is None or len(out) < lines) and (line := response.readline()):
        if line != b":\n":
            out.append(line.decode())
    return "".join(out)


def text_of(events):
    return "".join(re.findall(r'"text":"((?:[^"\\]|\\.)*)"', events))


class Resume(ServerCase):
    FLAGS = ("-c", 600)

    def begin(self, lines):
        """An answer's id, the number of its last event, and what was read, before the connection is cut."""
        connection, response = self.server.send("POST", "/v1/completions", {**BODY, "resume": True})
        events = read(response, lines)
        connection.sock.close()
        response.close()
        return re.search(r'"id":"([^"]+)"', events)[1], int(re.findall(r"^id: (\d+)$", events, re.M)[-1]), events

    def again(self, name, headers):
        connection, response = self.server.send("GET", f"/v1/stream/{name}", headers=headers)
        self.assertEqual(response.status, 200)
        events = read(response)
        connection.close()
        return events

    def test_it_goes_on_where_it_was_and_can_be_read_again(self):
        whole = self.server.text(BODY["prompt"], BODY["max_tokens"], temperature=0, ignore_eos=True)
        name, last, first = self.begin(30)
        rest = self.again(name, {"Last-Event-ID": str(last)})
        kept = re.split(r"^id: %d$" % last, first, flags=re.M)[0]  # the last one may be cut
        shown = text_of(kept) + text_of(self.again(name, {"Last-Event-ID": str(last - 1)}))
        self.assertEqual(json.loads(f'"{shown}"'), whole)
        self.assertEqual(rest.count("data: [DONE]"), 1)
        self.assertEqual(re.findall(r"^id: (\d+)$", rest, re.M)[0], str(last + 1))
        self.assertEqual(text_of(self.again(name, {})), shown)

    def test_without_resume_a_text_ends_with_its_client(self):
        connection, response = self.server.send("POST", "/v1/completions", BODY)
        events = read(response, 4)
        self.assertNotIn("id: ", events.split("data:")[0])
        connection.sock.close()
        response.close()
        self.assertEqual(self.server.until_texts(0), 0)
        self.server.post("/v1/completions", {**BODY, "stream": False, "resume": True}, status=400)

    def test_unknown_streams_and_events_are_refused(self):
        self.assertEqual(self.server.ask("GET", "/v1/stream/nothing").status, 404)
        name, _, _ = self.begin(4)
        self.assertEqual(self.server.ask("GET", f"/v1/stream/{name}", headers={"Last-Event-ID": "x"}).status, 400)
        self.assertEqual(self.again(name, {"Last-Event-ID": "100000"}).strip(), "")


if __name__ == "__main__":
    main()

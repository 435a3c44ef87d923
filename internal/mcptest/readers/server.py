# A server that reads with json.loads; see server_test.go.
import json
import os
import sys

with open("servers.json") as f:
    answers = json.load(f)
subjects = json.loads(os.environ["READERS_SUBJECTS"])


def member(value, name):
    return value.get(name) if isinstance(value, dict) else None


def text(value):
    return "" if value is None else str(value)


for line in sys.stdin.buffer:
    message = json.loads(line)
    method, params = message.get("method"), message.get("params")
    if method in subjects:
        subject = params
        for name in subjects[method]:
            subject = member(subject, name)
        with open(os.environ["READERS_JOURNAL"], "a") as f:
            f.write(json.dumps([method, text(subject), text(member(member(params, "arguments"), "path"))]) + "\n")
    if "id" not in message:
        continue
    answer = {"jsonrpc": "2.0", "id": message["id"]}
    if method == "server/discover":
        answer["error"] = {"code": -32601, "message": "method not found"}
    else:
        with open(os.environ["READERS_DESCRIBE"]) as f:
            answer["result"] = json.loads(json.dumps(answers.get(method, answers["other"])).replace("DESCRIPTION", f.read()))
    print(json.dumps(answer), flush=True)

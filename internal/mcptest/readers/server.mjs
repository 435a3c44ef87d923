// A server that reads with JSON.parse; see server_test.go.
import { appendFileSync, readFileSync } from "node:fs";
import { createInterface } from "node:readline";

const answers = JSON.parse(readFileSync("servers.json", "utf8"));
const subjects = JSON.parse(process.env.READERS_SUBJECTS);

createInterface({ input: process.stdin }).on("line", (line) => {
	const { id, method, params } = JSON.parse(line);
	if (Object.hasOwn(subjects, method)) {
		const subject = subjects[method].reduce((value, name) => value?.[name], params);
		appendFileSync(process.env.READERS_JOURNAL, JSON.stringify([method, String(subject ?? ""), String(params?.arguments?.path ?? "")]) + "\n");
	}
	if (id === undefined) return;
	const answer = { jsonrpc: "2.0", id };
	if (method === "server/discover") {
		answer.error = { code: -32601, message: "method not found" };
	} else {
		const result = JSON.stringify(Object.hasOwn(answers, method) ? answers[method] : answers.other);
		answer.result = JSON.parse(result.replace("DESCRIPTION", readFileSync(process.env.READERS_DESCRIBE, "utf8")));
	}
	process.stdout.write(JSON.stringify(answer) + "\n");
});

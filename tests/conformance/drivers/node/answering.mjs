// Answers every line of the input with one line, by the methods of a driver.

import { createInterface } from "node:readline";

export async function answerAll(driver, refused) {
  for await (const line of createInterface({ input: process.stdin })) {
    const { op, args } = JSON.parse(line);
    let answer;
    try {
      answer = { value: (await driver[op](args)) ?? null };
    } catch (error) {
      const found = refused(error);
      if (!found) throw error;
      answer = { error: found };
    }
    process.stdout.write(JSON.stringify(answer) + "\n");
  }
  process.exit(0);
}

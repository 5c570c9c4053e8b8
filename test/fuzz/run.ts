import { randomInt } from "node:crypto";
import { fuzz } from "./fuzz.ts";

/** `make fuzz FOR=10 SEED=1 TARGET=mountinfo`: fuzzes for minutes, prints the seed and what fails, and ends with 1 if anything does. */
const seed = Number(process.env.SEED || randomInt(2 ** 31));
const minutes = Number(process.env.FOR || 1);
process.stdout.write(`fuzzing for ${minutes} minutes with SEED=${seed}\n`);
const only = process.env.TARGET;
const { runs, failures } = await fuzz({ seed, seconds: minutes * 60, keepIn: "dist/fuzz", ...(only && { only }) });
for (const [name, count] of runs) process.stdout.write(`  ${name}: ${count} inputs\n`);
for (const failure of failures) process.stderr.write(`FAILED ${failure}\n`);
process.exitCode = failures.length > 0 ? 1 : 0;

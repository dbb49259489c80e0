import { generateText, tool, stepCountIs } from 'ai';
import { z } from 'zod';
import { interpret } from '@/run-python';

const runPython = tool({
  description: 'Runs a few lines of Python.',
  inputSchema: z.object({ code: z.string().describe('the whole program') }),
  execute: async ({ code }) => interpret(code),
});

export async function answer(question: string) {
  const { text } = await generateText({
    model: 'anthropic/claude-sonnet-4-6',
    tools: { runPython },
    stopWhen: stepCountIs(6),
    system: 'You answer with the help of small Python programs.',
    prompt: question,
  });
  return text;
}

console.log(await answer(process.argv[2]));

export default function Page() {
  return <p>{'POST {"prompt": "…"} to /api/agent.'}</p>;
}

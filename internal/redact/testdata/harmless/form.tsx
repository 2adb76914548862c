export function Login({ onToken }: { onToken: (token: string) => void }) {
  const [password, setPassword] = useState("");
  const apiKey = useConfig().apiKey;
  return (
    <form onSubmit={() => login({ password, apiKey }).then(({ accessToken }) => onToken(accessToken))}>
      <input type="password" name="password" value={password} autoComplete="current-password" key="password" />
      <button key={`save-${id}`}>Save password</button>
    </form>
  );
}
type Props = { token?: string; secret: string | null; keyName: KeyName; cookie: Cookie };
document.cookie = "theme=dark; path=/";

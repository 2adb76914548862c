CREATE TABLE users (id uuid PRIMARY KEY, password_hash text NOT NULL, token_expires_at timestamptz, api_key_id uuid);
SELECT password_hash FROM users WHERE token = $1 AND secret_id = ?;
INSERT INTO sessions (key, value) VALUES ($1, $2) ON CONFLICT (key) DO UPDATE SET value = excluded.value;
ALTER ROLE lantern WITH PASSWORD :'password';
FOREIGN KEY (owner_key) REFERENCES owners (key);

import os

class Client:
    """Holds a token; the password is never kept."""

    def __init__(self, token=None, password=None, api_key: str | None = None):
        self._token = token or os.environ["LANTERN_TOKEN"]
        self._password = password
        self.api_key = api_key or settings.API_KEY
        self.session_key = f"session:{self.user_id}:{self.region}"
        self.cache_key = "tides/%s/%s" % (self.port, self.day)

    def headers(self):
        return {"Authorization": f"Bearer {self._token}", "X-Api-Key": self.api_key}

    def login(self, password):
        token = self.http.post("/login", json={"password": password}).json()["token"]
        self.token = token
        passphrase = passphrase_from(prompt)
        return token

    key = operator.itemgetter("name")
    secret_key = property(lambda self: self._secret_key)

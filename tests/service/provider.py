"""A small OpenID Connect provider on this machine: real keys, real codes, PKCE. It is the peer."""

import base64
import hashlib
import json
import secrets
import socket
import threading
import time
from contextlib import contextmanager
from urllib.parse import parse_qsl, urlencode

import jwt
import uvicorn
from cryptography.hazmat.primitives.asymmetric import ed25519, rsa
from starlette.applications import Starlette
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse
from starlette.routing import Route

CLIENT, SECRET = "noisegate-console", "s3cret/+:"
RSA, EDWARDS = rsa.generate_private_key(65537, 2048), ed25519.Ed25519PrivateKey.generate()
STRANGER = rsa.generate_private_key(65537, 2048)


class Provider:
    """Signs in whoever is named by ``who``; ``wrong`` is what it does badly, ``alg`` how."""

    def __init__(self):
        self.who, self.alg, self.wrong, self.codes, self.asked = "ana", "RS256", {}, {}, []

    def routes(self):
        return [
            Route("/.well-known/openid-configuration", self.describe),
            Route("/keys", self.keys),
            Route("/authorize", self.authorize),
            Route("/token", self.token, methods=["POST"]),
            Route("/userinfo", self.userinfo),
            Route("/logout", lambda _: HTMLResponse("<p>You are signed out.</p>")),
        ]

    async def describe(self, _):
        places = {
            "authorization_endpoint": "authorize", "token_endpoint": "token",
            "end_session_endpoint": "logout", "jwks_uri": "keys", "userinfo_endpoint": "userinfo",
        }  # fmt: skip
        found = {"issuer": self.url} | {key: f"{self.url}/{v}" for key, v in places.items()}
        return JSONResponse(found)

    async def keys(self, _):
        public = {
            "RS256": json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(RSA.public_key())),
            "EdDSA": json.loads(jwt.algorithms.OKPAlgorithm.to_jwk(EDWARDS.public_key())),
        }
        listed = [{**key, "kid": name, "use": "sig"} for name, key in public.items()]
        return JSONResponse({"keys": listed})

    async def authorize(self, request):
        """A page with one link, as after a password; nothing is checked of the person."""
        said = dict(request.query_params)
        assert said["response_type"] == "code"
        assert said["client_id"] == CLIENT
        assert said["code_challenge_method"] == "S256"
        self.asked.append(said)
        if self.who is None:
            back = {"error": "access_denied", "state": said["state"]}
        else:
            code = secrets.token_urlsafe(16)
            self.codes[code] = said
            back = {"code": code, "state": said["state"], "iss": self.url}
        where = f"{said['redirect_uri']}?{urlencode(back | self.wrong.get('back', {}))}"
        if "text/html" in request.headers.get("accept", ""):
            return HTMLResponse(f'<a href="{where.replace("&", "&amp;")}">I am {self.who}</a>')
        return RedirectResponse(where, status_code=302)

    async def token(self, request):
        sent = dict(parse_qsl((await request.body()).decode()))
        code = self.codes.pop(sent.get("code"), None)
        basic = base64.b64encode(b"noisegate-console:s3cret%2F%2B%3A").decode()
        digest = hashlib.sha256(sent.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        if (
            code is None
            or request.headers.get("authorization") != f"Basic {basic}"
            or code["code_challenge"] != challenge
            or code["redirect_uri"] != sent["redirect_uri"]
        ):
            return JSONResponse({"error": "invalid_grant"}, status_code=400)
        claims = {
            "iss": self.url, "aud": CLIENT, "sub": "1", "iat": time.time(),
            "exp": time.time() + 60, "nonce": code["nonce"], "email": self.who,
            "email_verified": True,
        } | self.wrong.get("claims", {})  # fmt: skip
        beside = self.wrong.get("beside")
        if beside is not None:  # then a name is not in the token
            told = {"sub": "1", "email": claims.pop("email"), "email_verified": True}
            del claims["email_verified"]
            self.beside = told | beside
        key = self.wrong.get("key") or {"RS256": RSA, "EdDSA": EDWARDS}[self.alg]
        made = jwt.encode(claims, key, algorithm=self.alg, headers={"kid": self.alg})
        return JSONResponse({"id_token": made, "access_token": "x", "token_type": "Bearer"})

    async def userinfo(self, request):
        if request.headers.get("authorization") != "Bearer x":
            return JSONResponse({"error": "invalid_token"}, status_code=401)
        return JSONResponse(self.beside)


@contextmanager
def listening(app, host="127.0.0.1", name=None):
    """An application at a port of this machine."""
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", ws="none", lifespan="off"))
    with socket.socket() as found:
        found.bind((host, 0))
        thread = threading.Thread(target=server.run, args=([found],))
        thread.start()
        while not server.started:
            time.sleep(0.01)
        yield f"http://{name or host}:{found.getsockname()[1]}"
        server.should_exit = True
        thread.join()


@contextmanager
def provider():
    """Under another name of this machine than the console, so that browsers see two sites."""
    made = Provider()
    with listening(Starlette(routes=made.routes()), name="localhost") as made.url:
        yield made

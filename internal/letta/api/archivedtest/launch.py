"""Makes the archived server's tables and runs it on $PORT."""

import asyncio
import os

from sqlalchemy import text

from letta.orm import Base
from letta.server.db import engine


async def tables():
    async with engine.begin() as connection:
        await connection.execute(text("create extension if not exists vector"))
        await connection.run_sync(Base.metadata.create_all)
        # The tables as the server's migrations leave them: the package has the
        # models only, and those say nothing of this default.
        await connection.execute(text("create sequence if not exists message_seq_id"))
        await connection.execute(text("alter table messages alter column sequence_id set default nextval('message_seq_id')"))
    await engine.dispose()  # its connections belong to this loop


asyncio.run(tables())

from letta.server.rest_api.app import start_server  # noqa: E402

start_server(port=int(os.environ["PORT"]), host="127.0.0.1")

"""`delivery.once` in an app with several databases: the row is in the effect's own database, or refused."""

from __future__ import annotations

import pytest
from flask import Flask
from flask_sqlalchemy import SQLAlchemy
from sqlalchemy import create_engine, text
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, scoped_session, sessionmaker

from billhook import effects
from billhook.errors import ConfigError
from support.own_database import make_delivery


class Base(DeclarativeBase):
    pass


class Invoice(Base):
    __tablename__ = "invoice"
    id: Mapped[int] = mapped_column(primary_key=True)


class Visit(Base):
    __tablename__ = "visit"
    id: Mapped[int] = mapped_column(primary_key=True)


@pytest.fixture
def engines(tmp_path):
    made = [create_engine(f"sqlite:///{tmp_path}/{name}.db") for name in ("shop", "statistics")]
    for engine in made:
        Base.metadata.create_all(engine)
        effects.create_all(engine)
    yield made
    for engine in made:
        engine.dispose()


def counted(engine, table):
    with engine.connect() as connection:
        return connection.execute(text(f"SELECT count(*) FROM {table}")).scalar_one()


def test_an_effect_beside_the_row_is_once_whatever_else_is_bound(engines):
    shop, statistics = engines
    for expected in (True, False):
        with Session(shop, binds={Visit: statistics}) as session, session.begin():
            assert make_delivery().once(session) is expected
            if expected:
                session.add(Invoice())
        with Session(shop, binds={Visit: statistics}) as session, session.begin():
            session.add(Visit())  # another transaction: nothing is left of the one before

    assert (counted(shop, "billhook_effect"), counted(shop, "invoice")) == (1, 1)


@pytest.mark.parametrize("before", [True, False])
def test_an_effect_in_another_database_than_the_row_is_refused_and_nothing_is_committed(engines, before):
    shop, statistics = engines
    sessions = scoped_session(sessionmaker(shop, binds={Visit: statistics}))

    def handle():
        with sessions.begin():
            if before:
                sessions.add(Visit())
            make_delivery().once(sessions)
            if not before:
                sessions.add(Visit())

    with pytest.raises(ConfigError, match="Visit is in another database than the row of once") as refused:
        handle()
    sessions.remove()

    assert 'delivery.once(session.connection(bind_arguments={"mapper": Model}))' in str(refused.value)
    assert [counted(engine, "billhook_effect") for engine in engines] == [0, 0]
    assert counted(statistics, "visit") == 0


def test_the_connection_of_the_effects_database_is_right(engines):
    shop, statistics = engines
    for expected in (True, False):
        with Session(shop, binds={Visit: statistics}) as session, session.begin():
            connection = session.connection(bind_arguments={"mapper": Visit})
            assert make_delivery().once(connection) is expected
            session.add(Visit())

    assert [counted(engine, "billhook_effect") for engine in engines] == [0, 1]


class Routing(Session):
    """As SQLAlchemy's documentation routes by class."""

    def get_bind(self, mapper=None, **more):
        name = "statistics" if mapper is not None and issubclass(mapper.class_, Visit) else "shop"
        return self.info[name]


def test_a_session_that_routes_by_class_is_asked_as_sqlalchemy_asks_it(engines):
    shop, statistics = engines
    with Session(statistics) as session, session.begin():
        session.add(Visit(id=7))
    with Routing(info={"shop": shop, "statistics": statistics}) as session, session.begin():
        visit = session.get(Visit, 7)
        assert make_delivery().once(session)
        session.add(Invoice())
        visit.id = 7  # as it was: nothing of it is written

    assert (counted(shop, "billhook_effect"), counted(shop, "invoice")) == (1, 1)


def test_named_binds_alone_are_refused_with_the_remedy(tmp_path):
    app, db = Flask("shop"), SQLAlchemy()
    app.config["SQLALCHEMY_BINDS"] = {"shop": f"sqlite:///{tmp_path}/shop.db"}
    db.init_app(app)

    with app.app_context(), pytest.raises(ConfigError, match="has binds only, and none for billhook_effect"):
        make_delivery().once(db.session)

"""The driver of a PySpark program: which executors there are, what a query is, and where its state should be.

Everything goes through py4j into private parts of Spark that have had nearly the same form from 3.5 to 4.3. One thing is out
of its reach: the environment's block manager, whose class py4j can't load. A Java error ends the thread of the JVM that it
happens in, and that thread runs the query if it is called from a listener: call nothing here from a listener's own thread.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from holdfast_spark.placement.driver import (
    NODE_ATTRIBUTE,
    Executor,
    FurtherPlaces,
    Instance,
    StreamingQuery,
    words_of_further_places,
)
from holdfast_spark.state_settings import spark_version

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_STATE = "org.apache.spark.sql.execution.streaming.state"
_COORDINATOR_HAS_SETTINGS = (4, 1)
"""The first version of Spark in which the coordinator's reference is made with the session's settings."""
_WAITS_MILLISECONDS = 10_000
_CLASS = "HoldfastPlacement"
_SOURCE = f"""
import java.util.ArrayList;
import java.util.List;
import java.util.UUID;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerExecutorRemoved;
import {_STATE}.StateStoreCoordinatorRef;
import {_STATE}.StateStoreId;
import {_STATE}.StateStoreProviderId;
import scala.collection.immutable.Nil$;

public class {_CLASS} extends SparkListener {{
  private final List lost = new ArrayList();

  public synchronized void onExecutorRemoved(SparkListenerExecutorRemoved event) {{
    lost.add(event.executorId());
    notifyAll();
  }}

  public synchronized String lost(int known, long milliseconds) throws InterruptedException {{
    if (lost.size() <= known) wait(milliseconds);
    return lost.size() <= known ? "" : (String) lost.get(known);
  }}

  public int tell(Object reference, String location, String run, String lines) {{
    StateStoreCoordinatorRef coordinator = (StateStoreCoordinatorRef) reference;
    UUID runId = UUID.fromString(run);
    String[] all = lines.split("\\n");
    for (int i = 0; i < all.length; i++) {{
      String[] part = all[i].split("\\t");
      coordinator.reportActiveInstance(store(location, runId, part), part[3], part[4], Nil$.MODULE$);
    }}
    return all.length;
  }}

  public int elsewhere(Object reference, String location, String run, String lines) {{
    StateStoreCoordinatorRef coordinator = (StateStoreCoordinatorRef) reference;
    UUID runId = UUID.fromString(run);
    String[] all = lines.split("\\n");
    int found = 0;
    for (int i = 0; i < all.length; i++) {{
      String[] part = all[i].split("\\t");
      scala.Option where = coordinator.getLocation(store(location, runId, part));
      if (where.isDefined() && !where.get().toString().endsWith("_" + part[4])) found++;
    }}
    return found;
  }}

  private static StateStoreProviderId store(String location, UUID runId, String[] part) {{
    StateStoreId store = new StateStoreId(location, Long.parseLong(part[0]), Integer.parseInt(part[1]), part[2]);
    return new StateStoreProviderId(store, runId);
  }}
}}
"""
"""A Java class with one call for all partitions: py4j takes a millisecond for each call, and a query may have thousands. It
hears of executors that are lost, and keeps their ids for a thread of Python that waits."""


class Cluster:
    """The driver behind ``spark``, as ``Driver`` describes it. Every call may raise anything that py4j and the JVM raise."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark: Any = spark
        self._context: Any = spark.sparkContext
        self._teller: Any = None
        self._lost_executors: Any = None
        self._preparing = threading.Lock()

    def prepare(self) -> None:
        """Do what takes its time the first time: Spark's own compiler makes a class."""
        with self._preparing:
            if self._teller is not None:
                return
            compiler = self._context._jvm.org.codehaus.janino.SimpleCompiler()
            compiler.cook(_SOURCE)
            made = compiler.getClassLoader().loadClass(_CLASS)
            teller = made.getDeclaredConstructor(self._classes()).newInstance(self._objects())
            self.executors()
            self._coordinator()
            self._context._jsc.sc().addSparkListener(teller)
            self._teller = teller

    def seconds_since_start(self) -> float:
        """Return how long ago the application was started."""
        started: int = self._context.startTime
        now: int = self._context._jvm.System.currentTimeMillis()
        return (now - started) / 1000

    def executors(self) -> list[Executor]:
        """Return the executors that get tasks now.

        Not those that are being decommissioned, though they are active; nor those that have registered, but not yet their
        block manager: Spark does not tell where they are.
        """
        found = []
        scheduler = self._context._jsc.sc().taskScheduler()
        for summary in _each(self._context._jsc.sc().statusStore().executorList(True)):
            is_leaving = scheduler.getExecutorDecommissionState(summary.id()).isDefined()
            host = summary.hostPort().rpartition(":")[0].strip("[]")
            is_executor = summary.id() != "driver" and summary.isActive() and summary.totalCores() > 0
            if is_executor and host and not is_leaving:
                node = summary.attributes().get(NODE_ATTRIBUTE)
                found.append(Executor(summary.id(), host, summary.totalCores(), node.get() if node.isDefined() else ""))
        return found

    def query(self, query_id: str) -> StreamingQuery | None:
        """Return a query that is active; None for one that has ended."""
        execution = self._execution(query_id)
        if execution is None:
            return None
        return StreamingQuery(query_id, execution.resolvedCheckpointRoot(), execution.checkpointFile("state"))

    def plan(self, query: StreamingQuery) -> str:
        """Return the analyzed plan of a query, as Spark prints it; empty if the query has ended."""
        execution = self._execution(query.id)
        return "" if execution is None else str(execution.analyzedPlan().toString())

    def shuffle_partitions(self, query: StreamingQuery) -> int:  # noqa: ARG002 all queries are of this session
        """Return how many partitions the state of a new query gets."""
        return int(self._spark.conf.get("spark.sql.shuffle.partitions"))

    def has_jobs(self, run_id: str) -> bool:
        """Say whether Spark has had anything to do for a run of a query."""
        return bool(self._context.statusTracker().getJobIdsForGroup(run_id))

    def tell(self, query: StreamingQuery, run_id: str, instances: Iterable[Instance]) -> int:
        """Tell the coordinator of state stores where each one is; return how many were told."""
        return self._call("tell", query, run_id, instances)

    def elsewhere(self, query: StreamingQuery, run_id: str, instances: Iterable[Instance]) -> int:
        """Return how many state stores the coordinator knows with another executor now: its locations end with ``_ID``."""
        return self._call("elsewhere", query, run_id, instances)

    def tell_further_places(self, run_id: str, further: FurtherPlaces) -> None:
        """Tell where tasks of a run go whose executor is lost. Takes ``holdfast-spark.jar`` on the JVM's class path."""
        from py4j.java_gateway import JavaClass  # clients without PySpark import this module

        with self._preparing:
            if self._lost_executors is None:
                made = self._context._jvm.io.holdfast.spark.LostExecutors
                if not isinstance(made, JavaClass):
                    raise RuntimeError("the driver's JVM has no holdfast-spark.jar, or an earlier one")
                self._lost_executors = made.of(self._context._jsc.sc())
        self._lost_executors.tell("\n".join(words_of_further_places(run_id, further)))

    def runs(self) -> bool:
        """Say whether the application has not been stopped."""
        return self._context._jsc is not None

    def lost(self, known: int) -> str:
        """Wait for an executor to be lost, after so many that are known; return its id, "" if none was for a while."""
        self.prepare()
        found: str = self._teller.lost(known, _WAITS_MILLISECONDS)
        return found

    def _call(self, method: str, query: StreamingQuery, run_id: str, instances: Iterable[Instance]) -> int:
        """Call a method of the class in ``_SOURCE``; return the number of state stores that it returns."""
        lines = "\n".join(
            f"{each.operator}\t{each.partition}\t{each.store}\t{each.executor.host}\t{each.executor.id}"
            for each in instances
        )
        if not lines:
            return 0
        self.prepare()
        count: int = getattr(self._teller, method)(self._coordinator(), query.state_location, run_id, lines)
        return count

    def _coordinator(self) -> Any:
        reference = self._context._jvm.org.apache.spark.sql.execution.streaming.state.StateStoreCoordinatorRef
        environment = self._context._jsc.sc().env()
        if spark_version() < _COORDINATOR_HAS_SETTINGS:
            return reference.forDriver(environment)
        return reference.forDriver(environment, self._spark._jsparkSession.sessionState().conf())

    def _execution(self, query_id: str) -> Any:
        found = self._spark._jsparkSession.streams().get(query_id)
        return None if found is None else found.streamingQuery()

    def _classes(self) -> Any:
        return self._context._gateway.new_array(self._context._jvm.Class, 0)

    def _objects(self) -> Any:
        return self._context._gateway.new_array(self._context._jvm.Object, 0)


def _each(sequence: Any) -> Iterator[Any]:
    """Yield the elements of a Scala sequence."""
    iterator = sequence.iterator()
    while iterator.hasNext():
        yield iterator.next()

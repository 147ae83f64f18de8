"""The JVM of Spark's driver, for what only code inside it can do.

Java sources of this project are compiled in it by Janino, the compiler that Spark brings along for
the code of its queries. Through Spark Connect there is no such JVM to be reached.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def reachable(spark: SparkSession) -> bool:
    """Whether the JVM of the driver can be reached: not through Spark Connect."""
    return hasattr(spark, "_jsparkSession")


def gateway(spark: Any) -> Any:
    """The way into the JVM of the driver."""
    return spark.sparkContext._gateway  # noqa: SLF001 - nothing else leads there


def compiled(jvm: Any, source: str) -> Any:
    """The compiler, when it has compiled a source: it has the bytecode, and a loader of it."""
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(loader(jvm))
    compiler.cook(source)
    return compiler


def loader(jvm: Any) -> Any:
    """The loader that knows Spark's classes."""
    return jvm.java.lang.Thread.currentThread().getContextClassLoader()


def method(loaded: Any, name: str) -> Any:
    """A static method of a class that was loaded; py4j does not know the class by its name."""
    return next(each for each in loaded.getMethods() if each.getName() == name)


def frame(spark: Any, making: Any, *told: Any) -> DataFrame:
    """The DataFrame that a static method makes of the session and what it is told."""
    from pyspark.sql import DataFrame as Frame  # noqa: PLC0415 - an optional dependency

    way = gateway(spark)
    arguments = way.new_array(way.jvm.java.lang.Object, 1 + len(told))
    session = spark._jsparkSession  # noqa: SLF001 - nothing else leads there
    for at, value in enumerate((session, *told)):
        arguments[at] = value
    return Frame(making.invoke(None, arguments), spark)

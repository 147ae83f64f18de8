"""Access to the JVM of the Spark driver.

Java sources of this project are compiled in it by Janino, the compiler that Spark ships for its
generated code. Spark Connect has no driver JVM that can be reached.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def is_reachable(spark: SparkSession) -> bool:
    """Return True if the driver's JVM can be reached, which Spark Connect does not allow."""
    return hasattr(spark, "_jsparkSession")


def is_local(spark: SparkSession) -> bool:
    """Return True if the driver's process runs the tasks, too: the master is `local[...]`."""
    return is_reachable(spark) and str(spark.sparkContext.master).startswith("local")


def gateway(spark: Any) -> Any:
    """Return the py4j gateway to the driver's JVM."""
    return spark.sparkContext._gateway  # noqa: SLF001 - no public access


def compile_source(jvm: Any, source: str) -> Any:
    """Compile a Java source and return the compiler, which holds bytecode and class loader."""
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(loader(jvm))
    compiler.cook(source)
    return compiler


def loader(jvm: Any) -> Any:
    """Return the class loader that knows Spark's classes."""
    return jvm.java.lang.Thread.currentThread().getContextClassLoader()


def method(loaded: Any, name: str) -> Any:
    """Return a static method of a loaded class, which py4j cannot look up by name."""
    return next(method for method in loaded.getMethods() if method.getName() == name)


def frame(spark: Any, factory: Any, *arguments: Any) -> DataFrame:
    """Return the DataFrame that a static method builds from the session and `arguments`."""
    from pyspark.sql import DataFrame as Frame  # noqa: PLC0415 - an optional dependency

    jvm_gateway = gateway(spark)
    array = jvm_gateway.new_array(jvm_gateway.jvm.java.lang.Object, 1 + len(arguments))
    session = spark._jsparkSession  # noqa: SLF001 - no public access
    for at, value in enumerate((session, *arguments)):
        array[at] = value
    return Frame(factory.invoke(None, array), spark)

"""``python -m holdfast_spark.companion``."""

from holdfast_spark.companion.conversation import main

main()

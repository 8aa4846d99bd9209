"""One Prefect task a step of a flow: arguments in, emmy called, plain JSON values out."""

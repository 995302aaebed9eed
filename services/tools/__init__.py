"""The tool plane: who executes a tool call, under which permission, and the execution itself."""

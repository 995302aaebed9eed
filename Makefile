proto: ## generate gen/python from the contracts
	.venv/bin/python -m tools.proto

class RulesJudge:
    async def rate(self, question, responses, reply):
        return 0.5

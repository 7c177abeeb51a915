"""An exception with a constructor of its own, in a module that both sides have loaded."""


class Declined(Exception):
    def __init__(self, what, code):
        super().__init__(f"{what} declined")
        self.code = code

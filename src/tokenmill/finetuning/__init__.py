"""Teaching a trained model to answer: chats, the weights that learn, and the stage `finetune`."""
